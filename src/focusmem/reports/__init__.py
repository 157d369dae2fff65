"""In: the folders of one or two runs.
Out: a page on which people read them, episode by episode and step by step.
Does not know how a run was made: no agent, no model, no browser.
"""

from focusmem.reports.page import WrittenPage, write_page

__all__ = ["WrittenPage", "write_page"]
