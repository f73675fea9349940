"""The page: self-contained, escaped, accessible, and the same on every repeat."""

from __future__ import annotations

import re
import sys
from html.parser import HTMLParser

import pytest
from report_samples import NASTY, make_document

from paceline.report import drawing
from paceline.report.document import Column, Document, Section, Table
from paceline.report.formula import draw_formula
from paceline.report.html import render_html

VOID = {"meta", "br", "img", "link", "input", "hr"}


class Reader(HTMLParser):
    """Elements with their attributes, the text, and whether everything that opens closes."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
        self.open: list[str] = []
        self.feed(page)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)


@pytest.fixture(scope="module")
def page() -> str:
    pytest.importorskip("vl_convert")
    pytest.importorskip("typst")
    return render_html(make_document())


def test_nothing_is_fetched_from_outside(page: str) -> None:
    for tag, attributes in Reader(page).elements:
        assert tag not in ("script", "link", "iframe", "img", "object", "embed", "base")
        for name in ("src", "href", "xlink:href", "srcset", "data", "poster", "action"):
            assert (attributes.get(name) or "#").startswith("#"), (tag, attributes)
    assert "@import" not in page
    assert all(target.startswith("#") for target in re.findall(r"url\(['\"]?([^)]*)\)", page))
    # The only addresses left are names of XML dialects, which nobody fetches.
    assert set(re.findall(r"https?://([\w.]+)", page)) <= {"www.w3.org"}


def test_texts_arrive_unchanged(page: str) -> None:
    reader = Reader(page)
    assert "".join(reader.text).count(NASTY) >= 6
    assert not [tag for tag, _ in reader.elements if tag == "i"]


def test_references_lead_to_what_they_name(page: str) -> None:
    elements = Reader(page).elements
    ids = [attributes["id"] for _, attributes in elements if "id" in attributes]
    targets = {attributes["href"] for tag, attributes in elements if tag == "a"}
    assert targets == {"#figure-speedup", "#table-times"}
    assert {f"#{name}" for name in ids} >= targets
    # Glyphs of formulas are shared by design; all other ids are unique.
    assert len({name for name in ids if name}) == len(ids)


def test_figures_and_tables_speak_to_those_who_cannot_see_them(page: str) -> None:
    elements = Reader(page).elements
    pictures = [attributes for tag, attributes in elements if tag == "svg"]
    assert len(pictures) == 2 + 1 + 1  # wide and narrow; beside a table; a formula
    assert all(attributes["role"] == "img" and attributes["aria-label"] for attributes in pictures)
    headings = [attributes.get("scope") for tag, attributes in elements if tag == "th"]
    assert headings.count("col") == 3
    assert headings.count("row") == 4


def test_page_knows_both_themes_phones_and_paper(page: str) -> None:
    assert "prefers-color-scheme: dark" in page
    assert "@media print" in page
    assert "@media (max-width" in page
    assert 'name="viewport"' in page


def test_page_is_the_same_on_repeat(page: str) -> None:
    assert render_html(make_document()) == page


def test_formula_takes_the_colour_of_the_text() -> None:
    pytest.importorskip("typst")
    svg = draw_formula("S(n) = t_1 / t_n")
    assert "currentColor" in svg
    assert "#000" not in svg


def test_formula_that_is_none_is_told() -> None:
    pytest.importorskip("typst")
    with pytest.raises(ValueError, match="not in Typst's notation"):
        draw_formula("frac(1")


def test_without_packages_the_page_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "vl_convert", None)
    monkeypatch.setitem(sys.modules, "typst", None)
    drawing._vl_convert.cache_clear()
    page = render_html(make_document())
    assert "pip install" in page
    assert "S of n is t one over t n" in page
    assert "32.1" in page


def test_names_stay_on_a_line_and_sentences_keep_a_width() -> None:
    sentence = "stable: all finite, none of 87 steps skipped"
    table = Table("t", "", [Column("code"), Column("stability")], [["Code 1", sentence], [sentence, "ok"]])
    page = render_html(Document("t", [Section("s", [table])]))
    assert '<th scope="row" class="short">Code 1</th>' in page
    assert f'<td class="text long">{sentence}</td>' in page
    assert f'<th scope="row">{sentence}</th>' in page
    assert '<td class="text">ok</td>' in page
