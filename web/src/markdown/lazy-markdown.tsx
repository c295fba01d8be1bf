import { lazy, Suspense } from 'react'

const Markdown = lazy(() => import('./markdown.tsx').catch(() => ({ default: Plain })))

/** Markdown that a model wrote. Plain text until the parser has been loaded, and if it cannot be. */
export function LazyMarkdown({ text }: { text: string }) {
  return (
    <Suspense fallback={<Plain text={text} />}>
      <Markdown text={text} />
    </Suspense>
  )
}

function Plain({ text }: { text: string }) {
  return <p className="whitespace-pre-wrap">{text}</p>
}
