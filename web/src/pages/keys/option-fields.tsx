import { useQuery } from '@tanstack/react-query'
import { useState } from 'react'
import { modelsQuery } from '../../api/queries.ts'
import { Checkbox, Segmented, TextArea, TextField } from '../../ui/field.tsx'
import { isRestricted, type TermsErrors, type TermsForm } from './key-terms.ts'

/**
 * What a key may be used for: models, cost of one request, web tools, addresses. Closed at first if there are no restrictions; then only
 * the reader opens and closes it, so that a field that was emptied stays. It cannot hide an error.
 */
export function OptionFields({
  form,
  errors,
  onChange,
}: {
  form: TermsForm
  errors: TermsErrors
  onChange: (changed: Partial<TermsForm>) => void
}) {
  const [open, setOpen] = useState(() => isRestricted(form))
  const isWrong = errors.models !== undefined || errors.maxCost !== undefined
  return (
    <details
      open={open || isWrong}
      onToggle={({ currentTarget }) => {
        currentTarget.open ||= isWrong
        setOpen(currentTarget.open)
      }}
      className="border-t border-rule pt-3"
    >
      <summary className="cursor-pointer font-medium">Restrictions</summary>
      <div className="flex flex-col gap-4 pt-3">
        <ModelFields form={form} error={errors.models} onChange={onChange} />
        <TextField
          label="Maximum cost per request"
          mono
          inputMode="decimal"
          placeholder="none"
          suffix="USDC"
          value={form.maxCost}
          error={errors.maxCost}
          hint="A request that could cost more is refused before it starts. The cost that web search can add counts too: with a low cap, send requests without web search."
          onChange={({ target }) => onChange({ maxCost: target.value.trim() })}
        />
        <Checkbox
          label="Allow web search and web fetch"
          checked={form.webTools}
          onChange={({ target }) => onChange({ webTools: target.checked })}
        />
        <TextArea
          label="Allowed IP addresses"
          rows={2}
          placeholder="any address"
          value={form.ips}
          hint="IPv4 or IPv6 addresses or CIDR blocks such as 203.0.113.0/24, one per line. Empty allows any address."
          onChange={(ips) => onChange({ ips })}
        />
      </div>
    </details>
  )
}

function ModelFields({
  form,
  error,
  onChange,
}: {
  form: TermsForm
  error: string | undefined
  onChange: (changed: Partial<TermsForm>) => void
}) {
  const models = useQuery(modelsQuery)
  const sold = models.data?.data.map(({ id }) => id) ?? []
  // A model that is no longer sold stays in sight, so that it can be taken away.
  const names = [...sold, ...form.models.filter((model) => !sold.includes(model))]
  const toggle = (model: string, on: boolean) =>
    onChange({ models: on ? [...form.models, model] : form.models.filter((other) => other !== model) })
  return (
    <div className="flex flex-col gap-2">
      <span className="font-medium">Models</span>
      <Segmented
        label="Models"
        value={form.modelChoice}
        options={[
          ['all', 'All models'],
          ['some', 'Only selected'],
        ]}
        onChange={(modelChoice) => onChange({ modelChoice })}
      />
      {form.modelChoice === 'some' && (
        <fieldset className="grid gap-x-4 sm:grid-cols-[max-content_1fr]">
          <legend className="sr-only">Allowed models</legend>
          {names.map((model) => (
            <Checkbox
              key={model}
              label={<span className="num">{model}</span>}
              checked={form.models.includes(model)}
              onChange={({ target }) => toggle(model, target.checked)}
            />
          ))}
        </fieldset>
      )}
      {error !== undefined && (
        <p role="alert" className="text-sm text-error">
          {error}
        </p>
      )}
    </div>
  )
}
