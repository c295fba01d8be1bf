/** The look of the dashboard, reduced to what a page of text needs. Uses the fonts of the dashboard's build, if there is one. */
export function docsStyle(fonts: { readonly text: string | undefined; readonly code: string | undefined }): string {
  return `${face('Geist', fonts.text)}${face('Geist Mono', fonts.code)}${rules}`
}

function face(family: string, path: string | undefined): string {
  if (path === undefined) return ''
  return `@font-face { font-family: "${family}"; font-weight: 100 900; font-display: optional; src: url("${path}") format("woff2-variations"); }\n`
}

const rules = `
:root {
  color-scheme: light dark;
  --paper: light-dark(#fafaf7, #0d0f11); --surface: light-dark(#ffffff, #15181b); --sunken: light-dark(#f3f2ec, #101315); --ink: light-dark(#15171a, #eceef0); --muted: light-dark(#595e66, #a0a6ae); --edge: light-dark(#8b8f94, #6a7077); --rule: light-dark(#e4e3dc, #262a2e);
  --accent: light-dark(#0b6b5e, #46d3b8); --on-accent: light-dark(#ffffff, #06231d); --link: light-dark(#1f5fbf, #8ab4ff); --wash: light-dark(#e5f0ec, #12302b);
  --keyword: light-dark(#8a3fa8, #d08beb); --string: light-dark(#0b6b5e, #46d3b8); --number: light-dark(#b4540a, #ff9f5a); --name: light-dark(#1f5fbf, #8ab4ff);
  --mono: "Geist Mono", ui-monospace, SFMono-Regular, monospace;
}
:root[data-theme="light"] { color-scheme: light; }
:root[data-theme="dark"] { color-scheme: dark; }
* { box-sizing: border-box; }
[hidden] { display: none !important; }
body { margin: 0; background: var(--paper); color: var(--ink); font: 15px/24px Geist, ui-sans-serif, system-ui, sans-serif; }
a { color: var(--link); text-underline-offset: 2px; }
:focus-visible { outline: 2px solid var(--link); outline-offset: 2px; border-radius: 2px; }
.skip, .hidden { position: absolute; left: -999rem; }
.skip:focus { left: 1rem; top: 1rem; background: var(--surface); padding: 0.5rem 1rem; z-index: 2; }
header { display: flex; align-items: center; gap: 16px; padding: 12px 24px; border-bottom: 1px solid var(--rule); }
header a { color: var(--muted); text-decoration: none; }
header .brand { display: flex; align-items: center; gap: 8px; color: var(--ink); font-weight: 500; }
header .brand img { border: 0; border-radius: 0; }
header .top { display: flex; gap: 16px; }
form { position: relative; display: flex; gap: 8px; margin-left: auto; }
input { font: inherit; width: 16rem; max-width: 40vw; padding: 3px 10px; color: var(--ink); background: var(--surface); border: 1px solid var(--edge); border-radius: 6px; }
button { font: inherit; padding: 3px 12px; color: var(--on-accent); background: var(--accent); border: 1px solid var(--accent); border-radius: 6px; cursor: pointer; }
.js .tabs:not(:has(.tablist)) figure:not(:first-of-type) { display: none; }
.js .tabs:not(:has(.tablist)) figcaption { height: 27px; margin: 0; }
html:not(.js) .theme { display: none; }
.audiences { display: flex; gap: 4px; margin: 0 0 8px; font-size: 13px; }
.audiences a { padding: 2px 8px; color: var(--muted); border-radius: 4px; text-decoration: none; }
.audiences a[aria-current] { color: var(--ink); background: var(--wash); font-weight: 500; }
.theme { min-width: 4.5rem; color: var(--ink); background: var(--surface); border-color: var(--edge); }
.results { position: absolute; z-index: 1; top: 100%; right: 0; width: min(32rem, 92vw); max-height: 70vh; overflow-y: auto; margin: 6px 0 0; padding: 6px; list-style: none; background: var(--surface); border: 1px solid var(--edge); border-radius: 6px; }
.results li { margin: 0; padding: 0; }
.results a, .results li:not(:has(a)) { display: block; padding: 6px 10px; color: var(--ink); border-radius: 4px; }
.results a:hover, .results a:focus { background: var(--wash); }
.results strong { display: block; font-weight: 500; }
.results span { display: block; color: var(--muted); font-size: 13px; line-height: 18px; }
.page { display: grid; grid-template-columns: 220px minmax(0, 1fr) 200px; gap: 32px; max-width: 1280px; margin: 0 auto; padding: 24px; }
.page:not(:has(aside)) { grid-template-columns: 220px minmax(0, 1fr); }
.page nav h2, .page nav summary { margin: 12px 0 4px; font-size: 13px; font-weight: 500; color: var(--muted); cursor: pointer; }
.page nav ul { margin: 0; padding: 0; list-style: none; font-size: 14px; line-height: 22px; }
.page nav li { margin: 0; }
.page nav li a { display: block; padding: 2px 8px; color: var(--ink); text-decoration: none; border-radius: 4px; overflow-wrap: anywhere; }
.page nav a:hover { background: var(--sunken); }
.page nav a[aria-current] { background: var(--wash); font-weight: 500; }
.menu { display: none; }
aside nav { position: sticky; top: 24px; max-height: calc(100vh - 48px); overflow-y: auto; }
main { min-width: 0; max-width: 46rem; outline: none; }
main:has(.route) { max-width: none; }
.page:has(.route) { max-width: 1680px; }
.route { display: grid; grid-template-columns: repeat(2, minmax(0, 1fr)); column-gap: 32px; align-items: start; }
.route > h2, .route > p, .route > :only-of-type { grid-column: 1 / -1; }
.route > p { margin: 0; }
.sample { grid-column: 2; grid-row: 3; position: sticky; top: 24px; }
.sample > pre, .sample > .code > pre { max-height: 24rem; overflow-y: auto; margin: 0; }
@media (max-width: 900px) { .sample > pre, .sample > .code > pre { max-height: 14rem; } }
.routes { padding: 0; list-style: none; font-size: 14px; line-height: 20px; }
main summary { padding: 4px 0; cursor: pointer; }
main.home { max-width: none; }
main > :first-child { margin-top: 0; }
h1, h2, h3, h4 { font-weight: 500; line-height: 1.3; scroll-margin-top: 16px; }
h1 { font-size: 28px; letter-spacing: -0.01em; }
main h2 { margin: 40px 0 12px; padding-bottom: 4px; font-size: 20px; border-bottom: 1px solid var(--rule); overflow-wrap: anywhere; }
h3 { margin: 28px 0 8px; font-size: 16px; }
.cards { display: grid; grid-template-columns: repeat(auto-fit, minmax(16rem, 1fr)); gap: 16px; margin-top: 24px; }
.cards section { padding: 4px 20px 12px; background: var(--surface); border: 1px solid var(--rule); border-radius: 6px; }
.cards h2 { margin-top: 16px; border: 0; }
.cards ul { padding-left: 18px; }
li { margin: 4px 0; }
code, pre { font-family: var(--mono); font-size: 13px; }
:not(pre) > code { padding: 1px 4px; background: var(--sunken); border-radius: 4px; overflow-wrap: anywhere; }
pre { overflow-x: auto; margin: 0; padding: 12px 16px; line-height: 20px; background: var(--surface); border: 1px solid var(--rule); border-radius: 6px; white-space: pre-wrap; overflow-wrap: anywhere; }
main > pre { margin: 16px 0; }
.code { position: relative; margin: 16px 0; }
.copy { position: absolute; top: 6px; right: 6px; padding: 0 8px; font-size: 12px; line-height: 22px; color: var(--muted); background: var(--surface); border-color: var(--rule); }
.copy:hover { color: var(--ink); border-color: var(--edge); }
figure { margin: 0; }
figure .code { margin: 0; }
figcaption { margin-top: 12px; font-size: 13px; color: var(--muted); }
.tabs { margin: 16px 0; }
.tablist { display: flex; gap: 4px; margin-bottom: -1px; }
.tablist button { padding: 2px 12px; color: var(--muted); background: none; border: 1px solid transparent; border-radius: 6px 6px 0 0; }
.tablist button[aria-selected="true"] { color: var(--ink); background: var(--surface); border-color: var(--rule); border-bottom-color: var(--surface); }
.hljs-keyword, .hljs-built_in, .hljs-literal, .hljs-section { color: var(--keyword); }
.hljs-string, .hljs-attr { color: var(--string); }
.hljs-number, .hljs-variable { color: var(--number); }
.hljs-title, .hljs-type, .hljs-attribute { color: var(--name); }
.hljs-comment, .hljs-meta { color: var(--muted); }
.table { overflow-x: auto; margin: 16px 0; }
table { border-collapse: collapse; font-size: 14px; line-height: 20px; font-variant-numeric: tabular-nums; }
th, td { padding: 6px 16px 6px 0; text-align: left; vertical-align: top; border-bottom: 1px solid var(--rule); }
th { font-weight: 500; color: var(--muted); }
.number { text-align: right; }
td:first-child code { overflow-wrap: normal; }
blockquote { margin: 16px 0; padding-left: 16px; border-left: 2px solid var(--accent); color: var(--muted); }
img { max-width: 100%; height: auto; border: 1px solid var(--rule); border-radius: 6px; }
.hit { margin: 20px 0; }
.hit p { margin: 2px 0; color: var(--muted); }
.method { display: inline-block; min-width: 4.2em; color: var(--accent); font-weight: 500; }
.alternate { margin-top: 48px; padding-top: 12px; border-top: 1px solid var(--rule); font-size: 13px; }
:target:not(nav, main) { background: var(--wash); }
@media (max-width: 1280px) { .route { display: block; } .sample { position: static; } }
@media (max-width: 1100px) { .page, .page:not(:has(aside)) { grid-template-columns: 220px minmax(0, 1fr); } aside { display: none; } }
@media (max-width: 900px) {
  .page, .page:not(:has(aside)) { display: block; padding: 16px; }
  header { flex-wrap: wrap; gap: 8px 16px; padding: 12px 16px; }
  header .top { order: 1; }
  form { order: 2; flex: 1 0 100%; margin: 0; }
  .theme { order: 1; margin-left: auto; }
  input { flex: 1; width: auto; min-width: 0; max-width: none; }
  .menu { display: block; margin-left: auto; padding: 2px 10px; color: var(--ink); border: 1px solid var(--edge); border-radius: 6px; text-decoration: none; }
  #navigation { display: none; margin-bottom: 24px; padding: 12px; background: var(--surface); border: 1px solid var(--rule); border-radius: 6px; }
  #navigation:target { display: block; }
  #navigation .menu { float: right; }
}
@media print { header, .page > nav, aside, .alternate, .copy { display: none; } .page { display: block; } }
`
