"""Exporters by the name of their format. To add one: a file beside this one, and a line here."""

from collections.abc import Mapping
from typing import Final

from focusmem.data.exporters.base import Exporter
from focusmem.data.exporters.molmoweb import MolmoWebExporter
from focusmem.data.exporters.online_mind2web import OnlineMind2WebExporter
from focusmem.data.exporters.webvoyager import WebVoyagerExporter

EXPORTERS: Final[Mapping[str, Exporter]] = {
    "webvoyager": WebVoyagerExporter(),
    "online-mind2web": OnlineMind2WebExporter(),
    "molmoweb": MolmoWebExporter(),
}
