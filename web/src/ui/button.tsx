import type { AnchorHTMLAttributes, ButtonHTMLAttributes, ReactNode } from 'react'
import { classNames } from './class-names.ts'
import { Icon, type IconName } from './icon.tsx'

type Look = {
  /** `primary` moves money or finishes the form; a page has one at most. */
  variant?: 'primary' | 'secondary' | 'quiet' | 'danger' | undefined
  icon?: IconName | undefined
  small?: boolean | undefined
}

const base =
  'inline-flex items-center justify-center gap-2 rounded-md font-medium whitespace-nowrap select-none transition-colors duration-100 disabled:opacity-50 disabled:cursor-not-allowed aria-disabled:opacity-50'

const variants = {
  primary: 'bg-accent text-on-accent hover:brightness-110',
  secondary: 'border border-edge bg-surface text-ink hover:bg-sunken',
  quiet: 'text-muted hover:bg-sunken hover:text-ink',
  danger: 'border border-error text-error bg-surface hover:bg-error-wash',
}

export function buttonClass({ variant = 'secondary', small = false }: Look): string {
  return classNames(base, variants[variant], small ? 'h-7 px-2 text-sm' : 'h-8 px-3')
}

export type ButtonProps = Look & {
  /** The change that a click makes; the button is busy while it runs. */
  change?: { readonly mutate: () => void; readonly isPending: boolean }
  busy?: boolean
  children?: ReactNode
} & ButtonHTMLAttributes<HTMLButtonElement>

export function Button({
  variant,
  icon,
  small,
  change,
  busy = change?.isPending ?? false,
  className,
  children,
  ...rest
}: ButtonProps) {
  return (
    <button
      type="button"
      {...(change !== undefined && { onClick: () => change.mutate() })}
      {...rest}
      aria-busy={busy || undefined}
      disabled={rest.disabled || busy}
      className={classNames(buttonClass({ variant, small }), className)}
    >
      {icon !== undefined && <Icon name={icon} />}
      {children}
    </button>
  )
}

/** A square button with only an icon. Its name is read by assistive software and shown on hover. */
export function IconButton({
  icon,
  label,
  className,
  ...rest
}: { icon: IconName; label: string } & ButtonHTMLAttributes<HTMLButtonElement>) {
  return (
    <button
      type="button"
      aria-label={label}
      title={label}
      {...rest}
      className={classNames(
        'inline-flex size-8 items-center justify-center rounded-md text-muted hover:bg-sunken hover:text-ink disabled:opacity-50',
        className,
      )}
    >
      <Icon name={icon} />
    </button>
  )
}

/** A link that leaves the dashboard's own routes: a download, an explorer. */
export function AnchorButton({
  variant,
  icon,
  small,
  className,
  children,
  ...rest
}: Look & AnchorHTMLAttributes<HTMLAnchorElement>) {
  return (
    <a {...rest} className={classNames(buttonClass({ variant, small }), className)}>
      {icon !== undefined && <Icon name={icon} />}
      {children}
    </a>
  )
}
