"""Importers by the name of their format. To add one: a file beside this one, and a line here."""

from collections.abc import Mapping
from typing import Final

from focusmem.data.importers.base import Importer
from focusmem.data.importers.browser_use import BrowserUseImporter
from focusmem.data.importers.comem import ComemImporter
from focusmem.data.importers.molmoweb import MolmoWebImporter
from focusmem.data.importers.online_mind2web import OnlineMind2WebImporter
from focusmem.data.importers.webvoyager import WebVoyagerImporter

IMPORTERS: Final[Mapping[str, Importer]] = {
    "webvoyager": WebVoyagerImporter(),
    "online-mind2web": OnlineMind2WebImporter(),
    "molmoweb": MolmoWebImporter(),
    "browser-use": BrowserUseImporter(),
    "comem": ComemImporter(),
}
