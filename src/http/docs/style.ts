/** The look of the dashboard, in the few rules that a page of text needs. Fonts are those of its build, where there is one. */
export function docsStyle(fonts: { readonly text: string | undefined; readonly code: string | undefined }): string {
  return `${face('Geist', fonts.text)}${face('Geist Mono', fonts.code)}${rules}`
}

function face(family: string, path: string | undefined): string {
  if (path === undefined) return ''
  return `@font-face { font-family: "${family}"; font-weight: 100 900; font-display: swap; src: url("${path}") format("woff2-variations"); }\n`
}

const rules = `
:root {
  color-scheme: light dark;
  --paper: #fafaf7; --surface: #ffffff; --sunken: #f3f2ec; --ink: #15171a; --muted: #595e66; --edge: #8b8f94; --rule: #e4e3dc;
  --accent: #0b6b5e; --on-accent: #ffffff; --link: #1f5fbf; --wash: #e5f0ec;
  --mono: "Geist Mono", ui-monospace, SFMono-Regular, monospace;
}
@media (prefers-color-scheme: dark) {
  :root {
    --paper: #0d0f11; --surface: #15181b; --sunken: #101315; --ink: #eceef0; --muted: #a0a6ae; --edge: #6a7077; --rule: #262a2e;
    --accent: #46d3b8; --on-accent: #06231d; --link: #8ab4ff; --wash: #12302b;
  }
}
* { box-sizing: border-box; }
body { margin: 0; background: var(--paper); color: var(--ink); font: 15px/24px Geist, ui-sans-serif, system-ui, sans-serif; }
a { color: var(--link); text-underline-offset: 2px; }
:focus-visible { outline: 2px solid var(--link); outline-offset: 2px; border-radius: 2px; }
.skip, .hidden { position: absolute; left: -999rem; }
.skip:focus { left: 1rem; top: 1rem; background: var(--surface); padding: 0.5rem 1rem; }
header { display: flex; align-items: center; gap: 16px; padding: 12px 24px; border-bottom: 1px solid var(--rule); }
header > a { color: var(--muted); text-decoration: none; }
header .brand { color: var(--ink); font-weight: 500; }
form { display: flex; gap: 8px; margin-left: auto; }
input { font: inherit; width: 14rem; max-width: 40vw; padding: 3px 10px; color: var(--ink); background: var(--surface); border: 1px solid var(--edge); border-radius: 6px; }
button { font: inherit; padding: 3px 12px; color: var(--on-accent); background: var(--accent); border: 1px solid var(--accent); border-radius: 6px; cursor: pointer; }
.page { display: grid; grid-template-columns: 220px minmax(0, 1fr) 200px; gap: 32px; max-width: 1240px; margin: 0 auto; padding: 24px; }
nav h2 { margin: 20px 0 4px; font-size: 13px; font-weight: 500; color: var(--muted); }
nav ul { margin: 0; padding: 0; list-style: none; font-size: 14px; line-height: 22px; }
nav li { margin: 0; }
nav a { display: block; padding: 2px 8px; margin-left: -8px; color: var(--ink); text-decoration: none; border-radius: 4px; }
nav a:hover { background: var(--sunken); }
nav a[aria-current] { background: var(--wash); font-weight: 500; }
summary { display: none; }
aside nav { position: sticky; top: 24px; }
main { min-width: 0; max-width: 46rem; outline: none; }
main > :first-child { margin-top: 0; }
h1, h2, h3, h4 { font-weight: 500; line-height: 1.3; scroll-margin-top: 16px; }
h1 { font-size: 28px; letter-spacing: -0.01em; }
main h2 { margin: 40px 0 12px; padding-bottom: 4px; font-size: 20px; border-bottom: 1px solid var(--rule); }
h3 { margin: 28px 0 8px; font-size: 16px; }
li { margin: 4px 0; }
code, pre { font-family: var(--mono); font-size: 13px; }
:not(pre) > code { padding: 1px 4px; background: var(--sunken); border-radius: 4px; overflow-wrap: anywhere; }
pre { overflow-x: auto; padding: 12px 16px; line-height: 20px; background: var(--surface); border: 1px solid var(--rule); border-radius: 6px; }
.table { overflow-x: auto; margin: 16px 0; }
table { border-collapse: collapse; font-size: 14px; line-height: 20px; font-variant-numeric: tabular-nums; }
th, td { padding: 6px 16px 6px 0; text-align: left; vertical-align: top; border-bottom: 1px solid var(--rule); }
th { font-weight: 500; color: var(--muted); }
blockquote { margin: 16px 0; padding-left: 16px; border-left: 2px solid var(--accent); color: var(--muted); }
img { max-width: 100%; height: auto; border: 1px solid var(--rule); border-radius: 6px; }
.hit { margin: 20px 0; }
.hit p { margin: 2px 0; color: var(--muted); }
.method { display: inline-block; min-width: 4.2em; color: var(--accent); font-weight: 500; }
.alternate { margin-top: 48px; padding-top: 12px; border-top: 1px solid var(--rule); font-size: 13px; }
:target { background: var(--wash); }
@media (max-width: 1100px) { .page { grid-template-columns: 220px minmax(0, 1fr); } aside { display: none; } }
@media (max-width: 900px) { .page { grid-template-columns: minmax(0, 1fr); gap: 0; padding: 16px; } main { order: 1; } .page > nav { order: 2; border-top: 1px solid var(--rule); margin-top: 32px; } header { flex-wrap: wrap; padding: 12px 16px; } form { width: 100%; margin: 0; } input { flex: 1; max-width: none; } }
@media print { header, nav, aside, .alternate { display: none; } .page { display: block; } }
`
