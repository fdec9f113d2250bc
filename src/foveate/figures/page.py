"""The frame of a page that needs nothing from elsewhere: its style sheet, its script, and the way into it."""

from html import escape

_STYLE = """
:root { color-scheme: light dark; --ink: #1f2430; --soft: #667085; --line: #e3e6eb; --paper: #fff; --card: #f7f8fa;
  --good: #067a55; --bad: #b42318; }
@media screen and (prefers-color-scheme: dark) { :root { --ink: #e6e8ec; --soft: #98a1b0; --line: #2e3440;
  --paper: #14171c; --card: #1d2128; --good: #4cc38a; --bad: #ff8d7f; }
  .curves svg { filter: brightness(1.25); } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 76rem; padding: 2.5rem 1.25rem 4rem; background: var(--paper); color: var(--ink);
  font: 16px/1.5 Inter, "Helvetica Neue", Arial, "Liberation Sans", system-ui, sans-serif; }
h1 { font-size: 1.9rem; line-height: 1.2; letter-spacing: -.02em; margin: 0 0 .4rem; overflow-wrap: anywhere; }
h2 { font-size: 1.15rem; margin: 2.75rem 0 .75rem; letter-spacing: -.01em; }
p, ul { max-width: 44rem; margin: .5rem 0; }
ul { padding-left: 1.2rem; }
.lead { font-size: 1.1rem; }
.read { color: var(--soft); font-size: .875rem; }
.scroll { overflow-x: auto; -webkit-overflow-scrolling: touch; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { padding: .5rem .7rem; text-align: right; white-space: nowrap; border-bottom: 1px solid var(--line); }
thead th { white-space: normal; vertical-align: bottom; border-bottom: 2px solid var(--ink); font-size: .875rem; }
thead button { all: unset; cursor: pointer; }
thead button:focus-visible { outline: 2px solid var(--soft); outline-offset: 2px; }
thead small { display: block; font-weight: 400; color: var(--soft); }
th:first-child { text-align: left; padding-left: 0; position: sticky; left: 0; background: var(--paper); z-index: 1; }
tbody th { font-weight: 600; }
.dev { color: var(--soft); font-size: .85em; font-weight: 400; }
.dot { display: inline-block; width: .7em; height: .7em; border-radius: 50%; margin-right: .5em; }
.curves svg { display: block; overflow: visible; width: 100%; max-width: 34rem; height: auto; }
.curves svg text { font-family: inherit !important; }
.gallery { display: grid; gap: 6px; align-items: start; font-size: .8125rem; line-height: 1.25; }
.gallery > .name { position: sticky; left: 0; z-index: 1; align-self: stretch; display: flex; align-items: center;
  background: var(--paper); font-weight: 600; padding-right: .5rem; overflow-wrap: break-word; }
.gallery figure { margin: 0; min-width: 0; }
.gallery img { display: block; width: 100%; border-radius: 5px; }
.gallery figcaption { padding: .2rem .1rem .4rem; overflow-wrap: anywhere; color: var(--soft); }
.gallery .right { color: var(--good); } .gallery .wrong { color: var(--bad); }
.right::before { content: "\\2713\\00a0"; } .wrong::before { content: "\\2717\\00a0"; }
.illustration { display: block; max-width: 100%; height: auto; border-radius: 6px; background: #fff; }
dl { display: grid; grid-template-columns: repeat(auto-fill, minmax(15rem, 1fr)); gap: .1rem 1.5rem; margin: .5rem 0; }
dl div { display: flex; justify-content: space-between; gap: 1rem; padding: .35rem 0;
  border-bottom: 1px solid var(--line); font-size: .875rem; }
dt { color: var(--soft); } dd { margin: 0; text-align: right; overflow-wrap: anywhere; }
@media (max-width: 40rem) { body { padding-top: 1.5rem; } h1 { font-size: 1.5rem; } th, td { padding: .45rem .6rem; } }
@media print {
  body { max-width: none; padding: 0; font-size: 10pt; } .scroll { overflow: visible; }
  h2 { break-after: avoid; margin-top: 1.5rem; } .gallery, tr, svg, figure { break-inside: avoid; }
  .gallery { grid-template-columns: 5rem repeat(var(--n), minmax(0, 1fr)) !important; font-size: 7pt; }
  th, td { padding: .3rem .4rem; white-space: normal; }
  * { -webkit-print-color-adjust: exact; print-color-adjust: exact; }
}
"""

# A click on a heading sorts the table by it; cells carry their number in data-value, and those without one come last.
_SCRIPT = """
for (const button of document.querySelectorAll("thead button")) button.addEventListener("click", () => {
  const head = button.closest("th"), body = head.closest("table").tBodies[0];
  const up = head.getAttribute("aria-sort") === "descending" ? 1 : -1;
  for (const other of head.parentNode.children) other.removeAttribute("aria-sort");
  head.setAttribute("aria-sort", up === 1 ? "ascending" : "descending");
  const value = row => row.children[head.cellIndex].dataset.value;
  const rows = [...body.rows].sort((a, b) => {
    const [x, y] = [value(a), value(b)];
    return x === undefined ? (y === undefined ? 0 : 1) : y === undefined ? -1 : up * (x - y);
  });
  body.append(...rows);
});
"""


def page(title: str, body: str) -> str:
    """A whole HTML page around `body`, which the browser is told to let load nothing from anywhere.

    >>> page("a < b", "<p>text</p>").startswith("<!doctype html>")
    True
    """
    policy = "default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'unsafe-inline'"
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{_STYLE}</style>\n</head>\n"
        f"<body>\n{body}\n<script>{_SCRIPT}</script>\n</body>\n</html>\n"
    )
