import { useState } from 'react'
import { CopyButton } from '../ui/copy.tsx'
import { Tabs } from '../ui/tabs.tsx'
import { type Call, codeFor, type Language, languages } from './code.ts'

/** The same call in every language; the choice is remembered for as long as the page is there. */
export function SnippetTabs({ call, only }: { call: Call; only?: readonly Language[] }) {
  const [language, setLanguage] = useState<Language>('curl')
  const tabs = only === undefined ? languages : languages.filter(([one]) => only.includes(one))
  return (
    <Tabs label="Language" value={language} tabs={tabs} onChange={setLanguage}>
      <div className="pt-3">
        <CodeBlock code={codeFor(language, call)} label={`Code: ${language}`} />
      </div>
    </Tabs>
  )
}

function CodeBlock({ code, label }: { code: string; label: string }) {
  return (
    <div className="relative">
      <section
        // biome-ignore lint/a11y/noNoninteractiveTabindex: what scrolls must be reachable by the keyboard that scrolls it.
        tabIndex={0}
        aria-label={label}
        className="overflow-x-auto rounded-md border border-rule bg-sunken p-3 pr-24"
      >
        <pre className="num text-sm">
          <code>{code}</code>
        </pre>
      </section>
      <div className="absolute top-2 right-2">
        <CopyButton text={code} small />
      </div>
    </div>
  )
}
