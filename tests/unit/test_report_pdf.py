"""The PDF: byte for byte the same, within its page limit or saying that it is not, its text unharmed."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from report_samples import NASTY, make_document

from paceline.report.document import Document, Paragraph, Section
from paceline.report.pdf import SIZES, Pdf, num_pages, render_pdf

typst = pytest.importorskip("typst")
pytest.importorskip("vl_convert")


@pytest.fixture(scope="module")
def pdf() -> Pdf:
    return render_pdf(make_document())


def test_pdf_is_the_same_on_repeat_in_another_process_and_time_zone(pdf: Pdf, tmp_path: Path) -> None:
    script = (
        "import sys; from report_samples import make_document; from paceline.report.pdf import render_pdf;"
        "sys.stdout.buffer.write(render_pdf(make_document()).content)"
    )
    other = subprocess.run(
        [
            sys.executable,
            "-c",
            f"import sys; sys.path[:0] = {[path for path in sys.path if path]!r}; {script}",
        ],
        capture_output=True,
        check=True,
        cwd=tmp_path,
        env={**os.environ, "TZ": "Pacific/Apia", "HOME": str(tmp_path)},
    )
    assert other.stdout == pdf.content


def test_pages_are_counted(pdf: Pdf) -> None:
    assert pdf.num_pages == num_pages(pdf.content)
    longer = render_pdf(make_document(num_paragraphs=40))
    assert longer.num_pages > pdf.num_pages
    # Each page names its parent, and is one object.
    assert len(re.findall(rb"/Type\s*/Page\b", longer.content)) == longer.num_pages


def test_other_bytes_have_no_pages() -> None:
    with pytest.raises(ValueError, match="no page tree"):
        num_pages(b"%PDF-1.7")


def test_document_without_a_limit_is_set_at_full_size(pdf: Pdf) -> None:
    assert (pdf.font_size_pt, pdf.problem) == (SIZES[0][0], "")


def test_document_is_set_smaller_until_it_fits() -> None:
    free = render_pdf(make_document(num_paragraphs=12))
    limited = render_pdf(make_document(num_paragraphs=12, page_limit=free.num_pages - 1))
    assert limited.num_pages == free.num_pages - 1
    assert limited.problem == ""
    assert limited.font_size_pt >= 9


def test_document_that_cannot_fit_is_whole_and_says_so() -> None:
    pdf = render_pdf(make_document(num_paragraphs=30, page_limit=1))
    assert pdf.num_pages > 1
    assert f"the PDF has {pdf.num_pages} pages, the limit is 1" in pdf.problem
    assert pdf.font_size_pt == 9


@pytest.mark.skipif(not shutil.which("pdftotext"), reason="needs pdftotext (poppler-utils)")
def test_texts_arrive_unchanged(pdf: Pdf, tmp_path: Path) -> None:
    (tmp_path / "a.pdf").write_bytes(pdf.content)
    text = subprocess.run(
        ["pdftotext", "-raw", tmp_path / "a.pdf", "-"], capture_output=True, text=True
    ).stdout
    flat = " ".join(text.split())
    assert flat.count(NASTY) >= 4
    assert "see Figure 1 and Table 1" in flat
    assert "32.1 31.0–33.2" in flat
    assert "oom" in flat


@pytest.mark.parametrize(
    ("author", "ignored"), [("Zoë Łukasiewicz, Ωμέγα", True), ("李雷", False), ("سلام", False)]
)
def test_fonts_of_the_machine_serve_only_what_ours_cannot_write(
    monkeypatch: pytest.MonkeyPatch, author: str, ignored: bool
) -> None:
    asked: list[bool] = []
    compile_ = typst.compile

    def spy(*arguments: Any, **named: Any) -> Any:
        asked.append(named["ignore_system_fonts"])
        return compile_(*arguments, **named)

    monkeypatch.setattr(typst, "compile", spy)
    render_pdf(Document("Title", [Section("One", [Paragraph("1 × 2 → 3 ≤ 4 † µs")])], author=author))
    assert asked == [ignored]


@pytest.mark.skipif(not shutil.which("pdffonts"), reason="needs pdffonts (poppler-utils)")
def test_all_fonts_are_embedded_and_none_is_the_machines(pdf: Pdf, tmp_path: Path) -> None:
    (tmp_path / "a.pdf").write_bytes(pdf.content)
    lines = subprocess.run(
        ["pdffonts", tmp_path / "a.pdf"], capture_output=True, text=True
    ).stdout.splitlines()[2:]
    names = {line.split("+")[1].split()[0].partition("-")[0] for line in lines}
    assert names <= {"Arimo", "LibertinusSerif", "DejaVuSansMono", "NewCMMath", "NewComputerModernMath"}
    # emb, sub, uni
    assert all(line.split()[-5] == "yes" for line in lines)
