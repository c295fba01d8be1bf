import highlighter from 'highlight.js/lib/common'

/** Colouring is quadratic for some inputs; longer code stays plain. */
const highlightLengthMax = 20_000

/** A run of code and the classes that colour it. */
export type Run = { readonly text: string; readonly className: string }

/** The code in coloured runs; one plain run when the language is unknown or the code is long. */
export function highlightRuns(code: string, language: string): readonly Run[] {
  if (code.length > highlightLengthMax || highlighter.getLanguage(language) === undefined)
    return [{ text: code, className: '' }]
  const { value } = highlighter.highlight(code, { language, ignoreIllegals: true })
  return runsOf(value)
}

const entities: Readonly<Record<string, string>> = { lt: '<', gt: '>', amp: '&', quot: '"', '#x27': "'" }

/**
 * The library writes HTML that has nothing but `<span class="…">`, `</span>` and five entities. It is read back into runs, so
 * that no HTML is ever put into the page.
 */
function runsOf(html: string): readonly Run[] {
  const runs: Run[] = []
  const open: string[] = []
  for (const [part, className, entity] of html.matchAll(/<span class="([^"]*)">|<\/span>|&([^;]+);|[^<&]+/g)) {
    if (className !== undefined) open.push(className)
    else if (part === '</span>') open.pop()
    else {
      const text = entity === undefined ? part : (entities[entity] ?? part)
      const classes = open.join(' ')
      const last = runs.at(-1)
      if (last?.className === classes) runs[runs.length - 1] = { text: last.text + text, className: classes }
      else runs.push({ text, className: classes })
    }
  }
  return runs
}
