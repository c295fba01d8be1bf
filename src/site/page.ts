/** A plain page: no script, no third-party URL, readable in light and dark mode. */
export function page(title: string, main: string): string {
  return `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>${title} · Penny Router</title>
<style>
  :root { color-scheme: light dark; }
  body { font: 16px/1.5 system-ui, sans-serif; max-width: 46rem; margin: 3rem auto; padding: 0 1.5rem; }
  code, pre { font-family: ui-monospace, monospace; font-size: 0.9em; }
  pre { overflow-x: auto; padding: 1rem; border: 1px solid; border-radius: 6px; }
  h2 { margin-top: 2.5rem; font-size: 1.1rem; }
  :target { outline: 2px solid; outline-offset: 6px; }
</style>
</head>
<body>
<main>
${main}
</main>
</body>
</html>
`
}

/** Escapes text, so that it is shown verbatim. */
export function escapeHtml(text: string): string {
  return text.replace(/[&<>"]/g, (character) => entities[character]!)
}

const entities: Readonly<Record<string, string>> = { '&': '&amp;', '<': '&lt;', '>': '&gt;', '"': '&quot;' }
