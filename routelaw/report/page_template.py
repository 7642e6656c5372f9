"""How a page looks: its styles and its template. The styles are ours and need no escaping; everything else gets it."""

STYLE = """
:root { --ink: #1c2330; --soft: #5b6575; --line: #dfe3ea; --paper: #ffffff; --wash: #f6f7f9; --link: #0b5ca8;
  --good: #e2f3e8; --near: #fdf3d3; --bad: #fbe3df; --none: #ebecf1; --mine: #e6f0fa; }
* { box-sizing: border-box; }
html { scroll-behavior: smooth; -webkit-text-size-adjust: 100%; }
body { margin: 0; color: var(--ink); background: var(--paper);
  font: 16px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif; }
main, header, footer, nav { max-width: 1080px; margin: 0 auto; padding: 0 20px; }
header { padding-top: 40px; }
h1 { font-size: clamp(1.5rem, 4vw, 2.1rem); line-height: 1.2; margin: 0 0 10px; }
h2 { font-size: 1.4rem; margin: 56px 0 12px; padding-top: 14px; border-top: 2px solid var(--ink); }
h3 { font-size: 1.08rem; margin: 38px 0 6px; }
h3 .aside { color: var(--soft); font-weight: 400; font-size: .85rem; margin-left: 8px; }
p, ul { max-width: 46em; margin: 8px 0; }
li { margin: 5px 0; }
nav li { margin: 0; }
.lead { font-size: 1.08rem; color: var(--soft); max-width: 44em; }
.soft { color: var(--soft); font-size: .88rem; line-height: 1.5; }
.key { border-left: 3px solid var(--link); padding: 2px 0 2px 14px; }
nav ul { list-style: none; padding: 0; margin: 18px 0 0; display: flex; flex-wrap: wrap; gap: 6px 18px;
  max-width: none; }
a { color: var(--link); text-decoration: none; }
a:hover { text-decoration: underline; }
.scroll { overflow-x: auto; margin: 12px 0; -webkit-overflow-scrolling: touch; }
table { border-collapse: collapse; font-size: .9rem; font-variant-numeric: tabular-nums; }
th, td { padding: 5px 11px; text-align: right; border-bottom: 1px solid var(--line); vertical-align: middle; }
thead th { border-bottom: 1.5px solid var(--ink); font-weight: 600; white-space: nowrap; }
th:first-child { text-align: left; font-weight: 500; min-width: 5em; }
td { white-space: nowrap; }
td .over { display: block; font-size: .76rem; color: var(--soft); }
td .under { display: block; font-size: .74rem; color: var(--soft); }
td .mark { display: inline-block; width: 1.3em; text-align: left; color: var(--soft); }
table.wide { width: 100%; }
table.wide td, table.wide th { white-space: normal; text-align: left; vertical-align: top; }
table.wide th:first-child { width: 34%; min-width: 150px; }
table.wide th:first-child:nth-last-child(n+5) { width: 18%; }
table.wide td:nth-child(2):nth-last-child(n+4) { width: 25%; }
table.wide td:nth-child(3):nth-last-child(n+3) { width: 20%; }
td.good { background: var(--good); } td.near { background: var(--near); } td.bad { background: var(--bad); }
td.none { background: var(--none); } td.mine { background: var(--mine); }
.swatch { padding: 1px 8px; border-radius: 3px; }
figure { margin: 26px 0 40px; }
figure .frame { overflow-x: auto; border: 1px solid var(--line); border-radius: 6px; padding: 10px; background: #fff; }
figure img { display: block; max-width: 100%; height: auto; margin: 0 auto; }
figcaption { max-width: 46em; margin-top: 10px; font-size: .93rem; }
figcaption .name { font-weight: 600; }
footer { color: var(--soft); font-size: .85rem; padding-top: 30px; padding-bottom: 60px; }
@media (max-width: 640px) {
  body { font-size: 15px; }
  main, header, footer, nav { padding-left: 14px; padding-right: 14px; }
  figure img { max-width: none; width: max(100%, 620px); }
  th, td { padding: 4px 8px; }
  table.wide thead { display: none; }
  table.wide tr { display: block; border-bottom: 1px solid var(--line); padding: 8px 0; }
  table.wide th:first-child, table.wide td { display: block; width: auto; border: 0; padding: 2px 8px; }
  table.wide th:first-child { font-weight: 600; }
}
@media print { figure, table { break-inside: avoid; } nav { display: none; } }
"""

TEMPLATE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
{% if policy %}
<meta http-equiv="Content-Security-Policy" content="{{ policy }}">
{% endif %}
<title>{{ title }}</title>
<style>{{ style | safe }}</style>
</head>
<body>
<header>
<h1>{{ title }}</h1>
<p class="lead">{{ lead }}</p>
</header>
<nav aria-label="Contents"><ul>
{% for section in sections %}
<li><a href="#{{ section.anchor }}">{{ section.title }}</a></li>
{% endfor %}
</ul></nav>
<main>
{% for section in sections %}
<section id="{{ section.anchor }}">
<h2>{{ section.title }}</h2>
{% for block in section.blocks %}
{% if block.kind == "text" %}
<p{% if block.tone %} class="{{ block.tone }}"{% endif %}>{{ block.text }}</p>
{% elif block.kind == "heading" %}
<h3 id="{{ block.anchor }}">{{ block.text }}
{%- if block.aside %}<span class="aside">{{ block.aside }}</span>{% endif %}</h3>
{% elif block.kind == "bullets" %}
<ul>
{% for item in block.items %}<li>{{ item }}</li>
{% endfor %}
</ul>
{% elif block.kind == "grid" %}
<div class="scroll" tabindex="0"><table{% if block.wide %} class="wide"{% endif %}>
<thead><tr>{% for name in block.head %}<th scope="col">{{ name }}</th>{% endfor %}</tr></thead>
<tbody>
{% for row in block.rows %}
<tr>
{%- for entry in row %}
{% if loop.first %}<th scope="row">{% else %}<td{% if entry.tone %} class="{{ entry.tone }}"{% endif %}>{% endif %}
{%- if entry.over %}<span class="over">{{ entry.over }}</span>{% endif %}
{%- if entry.mark %}<span class="mark" aria-hidden="true">{{ entry.mark }}</span>{% endif %}
{%- if entry.link %}<a href="#{{ entry.link }}">{{ entry.text }}</a>{% else %}{{ entry.text }}{% endif %}
{%- if entry.under %}<span class="under">{{ entry.under }}</span>{% endif %}
{%- if loop.first %}</th>{% else %}</td>{% endif %}
{% endfor %}
</tr>
{% endfor %}
</tbody></table></div>
{% elif block.kind == "facts" %}
<dl class="facts">
{% for number, what in block.items %}<div><dt>{{ what }}</dt><dd>{{ number }}</dd></div>
{% endfor %}
</dl>
{% elif block.kind == "interactive" %}
<figure id="{{ block.name }}">
<div class="interactive" data-role="{{ block.role }}" data-from="{{ block.name }}-data">
<noscript>This part needs JavaScript; the files named below hold the same without it.</noscript>
</div>
<script type="application/json" id="{{ block.name }}-data">{{ block.island | safe }}</script>
<figcaption><span class="name">{{ block.title }}.</span> {{ block.caption }}
<span class="soft">
{% for label, address in block.links %}
<a href="{{ address }}">{{ label }}</a>{% if not loop.last %} · {% endif %}
{% endfor %}
</span></figcaption>
</figure>
{% elif block.kind == "picture" %}
<figure id="{{ block.name }}">
<div class="frame" tabindex="0"><img src="{{ block.image }}" alt="{{ block.title }}" loading="lazy"></div>
<figcaption><span class="name">{{ block.title }}.</span> {{ block.caption }}
<span class="soft">{% if block.source %}In the paper: {{ block.source }}. {% endif %}
{% for label, address in block.links %}
<a href="{{ address }}">{{ label }}</a>{% if not loop.last %} · {% endif %}
{% endfor %}
</span></figcaption>
</figure>
{% endif %}
{% endfor %}
</section>
{% endfor %}
</main>
<footer>{{ footer }}</footer>
{% for script in scripts %}
<script>{{ script | safe }}</script>
{% endfor %}
</body>
</html>
"""
