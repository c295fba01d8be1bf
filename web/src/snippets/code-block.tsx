import { CopyButton } from '../ui/copy.tsx'

export function CodeBlock({ code, label, onCopied }: { code: string; label: string; onCopied?: () => void }) {
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
        <CopyButton text={code} small {...(onCopied !== undefined && { onCopied })} />
      </div>
    </div>
  )
}
