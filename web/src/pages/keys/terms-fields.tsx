import { SelectField, TextField } from '../../ui/field.tsx'
import { utc } from '../../ui/format-time.ts'
import { type ExpiryChoice, type TermsErrors, type TermsForm, type Window, windowWords } from './key-terms.ts'
import { OptionFields } from './option-fields.tsx'

const expiries: readonly (readonly [ExpiryChoice, string])[] = [
  ['7', 'In 7 days'],
  ['30', 'In 30 days'],
  ['90', 'In 90 days'],
  ['date', 'On a date'],
]

/** `expiresAt` is the current expiry of an existing key, null if it never expires; undefined for a new key. */
export function TermsFields({
  form,
  errors,
  onChange,
  expiresAt,
}: {
  form: TermsForm
  errors: TermsErrors
  onChange: (form: TermsForm) => void
  expiresAt?: string | null
}) {
  const set = (changed: Partial<TermsForm>) => onChange({ ...form, ...changed })
  return (
    <div className="flex flex-col gap-4">
      <TextField
        label="Name"
        required
        maxLength={200}
        value={form.name}
        error={errors.name}
        onChange={({ target }) => set({ name: target.value })}
      />
      <div className="grid gap-4 sm:grid-cols-2">
        <TextField
          label="Limit"
          mono
          inputMode="decimal"
          placeholder="none"
          suffix="USDC"
          value={form.limit}
          error={errors.limit}
          onChange={({ target }) => set({ limit: target.value.trim() })}
        />
        <SelectField
          label="Reset"
          disabled={form.limit === ''}
          value={form.window}
          onChange={({ target }) => set({ window: target.value as Window })}
        >
          {Object.entries(windowWords).map(([value, [choice]]) => (
            <option key={value} value={value}>
              {choice}
            </option>
          ))}
        </SelectField>
      </div>
      <p className="-mt-2 text-sm text-muted">
        Hard limit: a request that could exceed it is refused before it starts.
      </p>
      <div className="grid gap-4 sm:grid-cols-2">
        <SelectField
          label="Expires"
          value={form.expiry}
          {...(form.expiry === 'keep' && expiresAt && { hint: endingOf(expiresAt) })}
          onChange={({ target }) => set({ expiry: target.value as ExpiryChoice })}
        >
          {[...endless(expiresAt), ...expiries].map(([value, words]) => (
            <option key={value} value={value}>
              {words}
            </option>
          ))}
        </SelectField>
        {form.expiry === 'date' && (
          <TextField
            label="Last day (UTC)"
            type="date"
            value={form.date}
            error={errors.date}
            onChange={({ target }) => set({ date: target.value })}
          />
        )}
      </div>
      <OptionFields form={form} errors={errors} onChange={set} />
    </div>
  )
}

function endless(expiresAt: string | null | undefined): readonly (readonly [ExpiryChoice, string])[] {
  if (expiresAt === undefined) return [['none', 'Never']]
  if (expiresAt === null) return [['keep', 'Never']]
  return [
    ['keep', 'Keep as is'],
    ['none', 'Never'],
  ]
}

function endingOf(expiresAt: string): string {
  return `${Date.parse(expiresAt) > Date.now() ? 'Works until' : 'Expired at'} ${utc(new Date(expiresAt))}.`
}
