"""In: run folders, one or two, as the evaluation left them.
Out: a page in which a person reads them, episode by episode and step by step.
Knows nothing of how a run came about: no agent, no model, no browser.
"""

from focusmem.reports.page import WrittenPage, write_page
from focusmem.reports.run_folder import RunFolder

__all__ = ["RunFolder", "WrittenPage", "write_page"]
