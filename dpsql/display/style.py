"""The look of everything that a notebook shows: one style sheet, scoped to `.dpsql`, light and dark.

Text has the notebook's own colour; lines and backgrounds are translucent greys, which suit any background. Only two
colours are ours: blue for values, orange for uncertainty. They follow the system's scheme, unless the notebook says
otherwise: JupyterLab sets body[data-jp-theme-light], VS Code body.vscode-dark, marimo [data-theme],
sites made with mkdocs-material [data-md-color-scheme]. Tables name their frame too, so that a notebook's own rules for
tables stand back.
"""

from __future__ import annotations

from html import escape

LIGHT = "--dp-value:#3f74d1;--dp-pale:#c9daf8;--dp-error:#c2570c;color-scheme:light"
DARK = "--dp-value:#8ab1ff;--dp-pale:#2f4a7d;--dp-error:#ffab66;color-scheme:dark"

STYLE = f"""
.dpsql{{{LIGHT};
 color:var(--jp-content-font-color1,var(--vscode-editor-foreground,inherit));
 font:13px/1.45 system-ui,-apple-system,"Segoe UI",Roboto,sans-serif;max-width:60rem;margin:.3em 0}}
@media (prefers-color-scheme:dark){{.dpsql{{{DARK}}}}}
body[data-jp-theme-light=true] .dpsql,body.vscode-light .dpsql,[data-theme=light] .dpsql,
[data-md-color-scheme=default] .dpsql{{{LIGHT}}}
body[data-jp-theme-light=false] .dpsql,body.vscode-dark .dpsql,[data-theme=dark] .dpsql,
[data-md-color-scheme=slate] .dpsql{{{DARK}}}
.dpsql .dp-scroll{{overflow-x:auto}}
.dpsql .dp-scroll table{{border-collapse:collapse;margin:0;border:0;font-size:inherit;
 font-variant-numeric:tabular-nums}}
.dpsql .dp-scroll tbody tr{{background:none}}
.dpsql .dp-scroll tbody tr:hover{{background:rgba(128,128,128,.12)}}
.dpsql .dp-scroll th,.dpsql .dp-scroll td{{padding:.25em .9em .25em 0;text-align:left;vertical-align:middle;border:0;
 white-space:nowrap;max-width:26em;overflow:hidden;text-overflow:ellipsis}}
.dpsql .dp-scroll th{{font-weight:600;border-bottom:1px solid rgba(128,128,128,.5)}}
.dpsql .dp-scroll td{{border-bottom:1px solid rgba(128,128,128,.18)}}
.dpsql .dp-scroll .dp-number{{text-align:right}}
.dpsql .dp-scroll td.dp-number:has(+.dp-error){{padding-right:.4em}}
.dpsql .dp-scroll td.dp-error{{color:var(--dp-error)}}
.dpsql .dp-muted{{opacity:.68}}
.dpsql .dp-faint{{opacity:.45}}
.dpsql .dp-null{{opacity:.55;font-style:italic;font-size:.88em;letter-spacing:.04em}}
.dpsql .dp-bar{{position:relative;display:inline-block;width:8em;height:1em;vertical-align:middle}}
.dpsql .dp-bar>*{{position:absolute;display:block}}
.dpsql .dp-bar b{{top:.14em;bottom:.14em;background:var(--dp-pale);border-radius:2px}}
.dpsql .dp-bar i{{top:.25em;bottom:.25em;box-sizing:border-box;border:solid var(--dp-error);border-width:0 1.5px}}
.dpsql .dp-bar i::before{{content:"";position:absolute;left:0;right:0;top:calc(50% - .75px);
 border-top:1.5px solid var(--dp-error)}}
.dpsql .dp-bar u{{top:0;bottom:0;width:0;border-left:1px solid rgba(128,128,128,.6)}}
.dpsql .dp-foot{{margin-top:.5em;font-size:.92em}}
.dpsql .dp-card{{border:1px solid rgba(128,128,128,.35);border-radius:8px;padding:.9em 1.1em}}
.dpsql .dp-title{{font-size:.85em;letter-spacing:.04em;opacity:.68;margin-bottom:.5em}}
.dpsql .dp-figures{{display:flex;flex-wrap:wrap;gap:.4em 2.4em;margin-bottom:.7em}}
.dpsql .dp-figure b{{display:block;font-size:1.55em;font-weight:600;line-height:1.2}}
.dpsql dl{{display:grid;grid-template-columns:max-content 1fr;gap:.22em 1.2em;margin:.5em 0}}
.dpsql dt{{opacity:.68;font-weight:400;margin:0}}
.dpsql dd{{margin:0;padding:0}}
.dpsql details{{margin-top:.5em}}
.dpsql summary{{cursor:pointer;opacity:.75}}
.dpsql pre{{white-space:pre-wrap;overflow-wrap:anywhere;max-height:22em;overflow-y:auto;margin:.5em 0 0;padding:.7em;
 font:12px/1.5 ui-monospace,Menlo,Consolas,monospace;color:inherit;background:rgba(128,128,128,.12);border-radius:6px}}
.dpsql .dp-meter{{display:flex;height:1em;border-radius:5px;overflow:hidden;background:rgba(128,128,128,.2)}}
.dpsql .dp-meter b{{background:var(--dp-value);box-sizing:border-box;border-right:1px solid rgba(255,255,255,.75)}}
.dpsql .dp-steps{{display:flex;align-items:flex-end;gap:3px;height:6em;margin-top:1em;
 border-bottom:1px solid rgba(128,128,128,.5)}}
.dpsql .dp-step{{flex:0 1 2.2em;min-width:3px;height:100%;display:flex;flex-direction:column;justify-content:flex-end}}
.dpsql .dp-step>*{{display:block;box-sizing:border-box}}
.dpsql .dp-step b{{background:var(--dp-value);border-radius:2px 2px 0 0;min-height:2px}}
.dpsql .dp-step i{{background:var(--dp-pale)}}
.dpsql p{{margin:.6em 0}}
.dpsql ul{{margin:.4em 0;padding-left:1.3em}}
"""


def framed(content: str) -> str:
    """The content with the style that it needs, wherever it is shown."""
    return f'<div class="dpsql"><style>{STYLE}</style>{content}</div>'


def text(value: object) -> str:
    """
    >>> text("<b>&'")
    '&lt;b&gt;&amp;&#x27;'
    """
    return escape(str(value))
