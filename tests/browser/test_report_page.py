"""The page in a real browser: nothing fetched, nothing wider than the screen, both themes.

Skipped without Chromium: `apt install chromium; pytest tests/browser`.
"""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "unit"))
from report_samples import make_document

from paceline.report.html import render_html

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--window-size=1400,900",
]

# The page stands in a frame of the wanted width, since a headless window is never as narrow as a phone.
FRAME = """<!doctype html>
<iframe id="page" style="border: 0; width: {width}px; height: 2000px" srcdoc="{page}"></iframe>
<script>
addEventListener("load", () => {{
  const page = document.getElementById("page").contentDocument;
  const shown = [...page.querySelectorAll("svg")].filter(svg => svg.getBoundingClientRect().width > 0);
  const out = document.createElement("pre");
  out.id = "measured";
  out.textContent = JSON.stringify({{
    width: page.documentElement.scrollWidth,
    ground: getComputedStyle(page.body).backgroundColor,
    variants: [...new Set(shown.map(svg => svg.getAttribute("class")))].filter(Boolean).sort(),
    requests: page.defaultView.performance.getEntriesByType("resource").map(entry => entry.name),
    widest: Math.max(...shown.map(svg => svg.getBoundingClientRect().right)),
    unpainted: shown.flatMap(svg => [...svg.querySelectorAll("[fill^=var]")])
      .filter(mark => getComputedStyle(mark).fill === "none").length,
    cut: shown.flatMap(svg => [...svg.querySelectorAll("text")].filter(text => {{
      const [inner, outer] = [text, svg].map(one => one.getBoundingClientRect());
      return inner.left < outer.left - 1 || inner.right > outer.right + 1
        || inner.top < outer.top - 1 || inner.bottom > outer.bottom + 1;
    }}).map(text => text.textContent)),
  }});
  document.body.append(out);
}});
</script>"""

pytestmark = [
    pytest.mark.skipif(CHROMIUM is None, reason="needs chromium"),
    pytest.mark.skipif(sys.platform != "linux", reason="the flags are those of Linux"),
]


@pytest.fixture(scope="module")
def page() -> str:
    pytest.importorskip("vl_convert")
    pytest.importorskip("typst")
    return render_html(make_document())


def open_page(file: Path, tmp_path: Path, *flags: str) -> str:
    assert CHROMIUM is not None
    command = [
        CHROMIUM,
        *FLAGS,
        f"--user-data-dir={tmp_path / 'profile'}",
        *flags,
        "--dump-dom",
        file.as_uri(),
    ]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout


def measure(page: str, tmp_path: Path, width: int, *, dark: bool = False) -> dict[str, Any]:
    file = tmp_path / "frame.html"
    file.write_text(FRAME.format(width=width, page=html.escape(page)))
    theme = ["--blink-settings=preferredColorScheme=0"] if dark else []
    found = re.search(r'<pre id="measured">(.*?)</pre>', open_page(file, tmp_path, *theme), re.DOTALL)
    assert found is not None
    measured: dict[str, Any] = json.loads(html.unescape(found[1]))
    return measured


@pytest.mark.parametrize(("width", "variants"), [(375, ["any", "narrow"]), (1280, ["any", "wide"])])
def test_nothing_is_wider_than_the_screen(page: str, tmp_path: Path, width: int, variants: list[str]) -> None:
    measured = measure(page, tmp_path, width)
    assert measured["width"] <= width
    assert measured["widest"] <= width
    assert measured["variants"] == variants
    # No label reaches over its figure's edge.
    assert measured["cut"] == []


def test_page_follows_the_readers_theme(page: str, tmp_path: Path) -> None:
    light, dark = measure(page, tmp_path, 1280), measure(page, tmp_path, 1280, dark=True)
    assert light["ground"] == "rgb(255, 255, 255)"
    assert dark["ground"] == "rgb(21, 24, 28)"
    assert light["unpainted"] == dark["unpainted"] == 0


def test_browser_asks_for_nothing_but_the_page(page: str, tmp_path: Path) -> None:
    assert measure(page, tmp_path, 1280)["requests"] == []
    picture = "http://127.0.0.1:9/picture.png"  # a port where nobody listens
    assert measure(f'{page}<img src="{picture}">', tmp_path, 1280)["requests"] == [picture]
