import highlighter from 'highlight.js/lib/core'
import bash from 'highlight.js/lib/languages/bash'
import go from 'highlight.js/lib/languages/go'
import http from 'highlight.js/lib/languages/http'
import ini from 'highlight.js/lib/languages/ini'
import javascript from 'highlight.js/lib/languages/javascript'
import json from 'highlight.js/lib/languages/json'
import python from 'highlight.js/lib/languages/python'
import sql from 'highlight.js/lib/languages/sql'
import yaml from 'highlight.js/lib/languages/yaml'
import { escapeHtml } from '../page.ts'

const languages = { sh: bash, go, http, ini, js: javascript, ts: javascript, json, python, sql, yaml }
for (const [name, language] of Object.entries(languages)) highlighter.registerLanguage(name, language)

/** Code as HTML with `span` classes that the style sheet colours. Code in an unknown language stays plain text. */
export function highlight(code: string, language: string): string {
  if (!(language in languages)) return escapeHtml(code)
  return highlighter.highlight(code, { language, ignoreIllegals: true }).value
}
