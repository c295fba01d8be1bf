import { useState } from 'react'
import { Tabs } from '../ui/tabs.tsx'
import { type Call, codeFor, type Language, languages } from './code.ts'
import { CodeBlock } from './code-block.tsx'

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
