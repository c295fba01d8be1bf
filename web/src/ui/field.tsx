import { type InputHTMLAttributes, type ReactNode, type SelectHTMLAttributes, useId } from 'react'
import { classNames } from './class-names.ts'

const control =
  'h-8 w-full rounded-md border border-edge bg-surface px-2.5 text-ink disabled:opacity-60 aria-invalid:border-error'

type Described = { label: string; hint?: ReactNode; error?: string | undefined }

/** Of a control: its id, and the hint and the error that screen readers read with it. */
type Linked = { readonly id: string; 'aria-describedby': string | undefined; 'aria-invalid': boolean }

/** Label, control, hint and error, linked for screen readers. */
function Field({ label, hint, error, control }: Described & { control: (linked: Linked) => ReactNode }) {
  const id = useId()
  const described = [hint !== undefined && `${id}-hint`, error !== undefined && `${id}-error`].filter(Boolean).join(' ')
  return (
    <div className="flex flex-col gap-1">
      <label htmlFor={id} className="font-medium wrap-anywhere">
        {label}
      </label>
      {control({ id, 'aria-describedby': described || undefined, 'aria-invalid': error !== undefined })}
      {hint !== undefined && (
        <p id={`${id}-hint`} className="text-sm text-muted">
          {hint}
        </p>
      )}
      {error !== undefined && (
        <p id={`${id}-error`} role="alert" className="text-sm text-error">
          {error}
        </p>
      )}
    </div>
  )
}

/** Attributes of a control, but that it takes and gives its value, not events. */
type Native<Props> = Omit<Props, 'onChange' | 'value'>

type TextFieldProps = Described & {
  /** Without spaces around it. */
  trimmed?: boolean
  /** Of USDC, as typed. */
  amount?: boolean
  mono?: boolean
  suffix?: ReactNode
  value: string
  onChange: (text: string) => void
} & Native<InputHTMLAttributes<HTMLInputElement>>

export function TextField({
  label,
  hint,
  error,
  amount = false,
  trimmed = amount,
  mono = amount,
  suffix,
  onChange,
  ...rest
}: TextFieldProps) {
  const unit = suffix ?? (amount ? 'USDC' : undefined)
  return (
    <Field
      {...{ label, hint, error }}
      control={(linked) => (
        <div className="relative flex items-center">
          <input
            type="text"
            autoComplete="off"
            spellCheck={false}
            {...(amount && { inputMode: 'decimal' })}
            {...linked}
            {...rest}
            onChange={({ target }) => onChange(trimmed ? target.value.trim() : target.value)}
            className={classNames(control, mono && 'num', unit !== undefined && 'pr-24')}
          />
          {unit !== undefined && (
            <span className="absolute right-1 flex items-center gap-1 pr-1 text-sm text-muted">{unit}</span>
          )}
        </div>
      )}
    />
  )
}

export type Options<Value extends string> = readonly (readonly [Value, string])[]

type SelectProps<Value extends string> = {
  value: Value
  /** The values and their words, or `children`. */
  options?: Options<Value>
  onChange: (value: Value) => void
} & Native<SelectHTMLAttributes<HTMLSelectElement>>

export function SelectField<Value extends string>({ label, hint, error, ...rest }: Described & SelectProps<Value>) {
  return <Field {...{ label, hint, error }} control={(linked) => <Select {...linked} {...rest} />} />
}

export function Select<Value extends string>({
  className,
  options = [],
  children,
  onChange,
  ...rest
}: SelectProps<Value>) {
  return (
    <select
      {...rest}
      onChange={({ target }) => onChange(target.value as Value)}
      className={classNames(control, 'min-w-0', className)}
    >
      {options.map(([value, words]) => (
        <option key={value} value={value}>
          {words}
        </option>
      ))}
      {children}
    </select>
  )
}

type TextAreaProps = Described & {
  value: string
  onChange: (text: string) => void
  rows?: number
  mono?: boolean
  placeholder?: string
}

export function TextArea({ label, hint, error, mono = false, onChange, ...rest }: TextAreaProps) {
  return (
    <Field
      {...{ label, hint, error }}
      control={(linked) => (
        <textarea
          {...linked}
          {...rest}
          onChange={({ target }) => onChange(target.value)}
          className={classNames(control, 'h-auto resize-y py-2', mono && 'num text-sm')}
        />
      )}
    />
  )
}

type CheckboxProps = { label: ReactNode; hint?: ReactNode; onChange: (checked: boolean) => void }

export function Checkbox({
  label,
  hint,
  onChange,
  ...rest
}: CheckboxProps & Native<InputHTMLAttributes<HTMLInputElement>>) {
  return (
    <label className="flex items-start gap-2 py-0.5">
      <input
        type="checkbox"
        {...rest}
        onChange={({ target }) => onChange(target.checked)}
        className="mt-0.5 size-4 shrink-0 accent-accent"
      />
      <span>
        {label}
        {hint !== undefined && <span className="block text-sm text-muted">{hint}</span>}
      </span>
    </label>
  )
}

/** Any number of a list. The legend is shown above them, or, as `label`, only read out. */
export function Checkboxes<Value extends string>({
  legend,
  label,
  all,
  hasCodes = false,
  value: chosen,
  onChange,
  className,
}: {
  legend?: string
  label?: string
  all: readonly (readonly [Value, ReactNode])[]
  /** Shows the value after its words, as programs write it. */
  hasCodes?: boolean
  value: readonly Value[]
  onChange: (chosen: readonly Value[]) => void
  className?: string
}) {
  return (
    <fieldset className={className}>
      <legend className={legend === undefined ? 'sr-only' : 'font-medium'}>{legend ?? label}</legend>
      {all.map(([value, words]) => (
        <Checkbox
          key={value}
          label={
            hasCodes ? (
              <>
                {words} <code className="text-sm text-muted">{value}</code>
              </>
            ) : (
              words
            )
          }
          checked={chosen.includes(value)}
          onChange={(on) => onChange(on ? [...chosen, value] : chosen.filter((other) => other !== value))}
        />
      ))}
    </fieldset>
  )
}

/** A choice of few, all in sight. */
export function Segmented<Value extends string>({
  label,
  value,
  options,
  onChange,
}: {
  label: string
  value: Value
  options: Options<Value>
  onChange: (value: Value) => void
}) {
  const name = useId()
  return (
    <fieldset className="inline-flex w-fit rounded-md border border-edge bg-surface p-0.5">
      <legend className="sr-only">{label}</legend>
      {options.map(([option, text]) => (
        <label
          key={option}
          className="relative cursor-pointer rounded-sm px-2.5 py-0.5 text-sm text-muted has-checked:bg-ink has-checked:text-paper has-focus-visible:outline-2 has-focus-visible:outline-offset-2 has-focus-visible:outline-link"
        >
          <input
            type="radio"
            name={name}
            value={option}
            checked={option === value}
            onChange={() => onChange(option)}
            className="absolute inset-0 cursor-pointer appearance-none opacity-0"
          />
          {text}
        </label>
      ))}
    </fieldset>
  )
}
