import { lazy, Suspense } from 'react'

const Markdown = lazy(() => import('./markdown.tsx'))

/** Markdown that a model wrote. Plain text until the parser has been loaded. */
export function LazyMarkdown({ text }: { text: string }) {
  return (
    <Suspense fallback={<p className="whitespace-pre-wrap">{text}</p>}>
      <Markdown text={text} />
    </Suspense>
  )
}
