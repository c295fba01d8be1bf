import highlighter from 'highlight.js/lib/core'
import bash from 'highlight.js/lib/languages/bash'
import c from 'highlight.js/lib/languages/c'
import cpp from 'highlight.js/lib/languages/cpp'
import csharp from 'highlight.js/lib/languages/csharp'
import css from 'highlight.js/lib/languages/css'
import diff from 'highlight.js/lib/languages/diff'
import go from 'highlight.js/lib/languages/go'
import ini from 'highlight.js/lib/languages/ini'
import java from 'highlight.js/lib/languages/java'
import javascript from 'highlight.js/lib/languages/javascript'
import json from 'highlight.js/lib/languages/json'
import kotlin from 'highlight.js/lib/languages/kotlin'
import markdown from 'highlight.js/lib/languages/markdown'
import php from 'highlight.js/lib/languages/php'
import python from 'highlight.js/lib/languages/python'
import ruby from 'highlight.js/lib/languages/ruby'
import rust from 'highlight.js/lib/languages/rust'
import sql from 'highlight.js/lib/languages/sql'
import swift from 'highlight.js/lib/languages/swift'
import typescript from 'highlight.js/lib/languages/typescript'
import xml from 'highlight.js/lib/languages/xml'
import yaml from 'highlight.js/lib/languages/yaml'

// Each registers its usual aliases too, such as `ts`, `py` and `html`.
const languages = {
  bash,
  c,
  cpp,
  csharp,
  css,
  diff,
  go,
  ini,
  java,
  javascript,
  json,
  kotlin,
  markdown,
  php,
  python,
  ruby,
  rust,
  sql,
  swift,
  typescript,
  xml,
  yaml,
}
for (const [name, language] of Object.entries(languages)) highlighter.registerLanguage(name, language)

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
