import { useQuery } from '@tanstack/react-query'
import { useState } from 'react'
import { modelsQuery } from '../../api/queries.ts'
import { Checkbox, Checkboxes, type Options, Segmented, SelectField, TextArea, TextField } from '../../ui/field.tsx'
import type { FormState } from '../../ui/form.tsx'
import { utc } from '../../ui/format-time.ts'
import { type ExpiryChoice, isRestricted, type TermsForm, type Window, windowWords } from './key-terms.ts'

type Terms = FormState<TermsForm>

const windows = Object.entries(windowWords).map(([value, [choice]]) => [value as Window, choice] as const)

const expiries: Options<ExpiryChoice> = [
  ['7', 'In 7 days'],
  ['30', 'In 30 days'],
  ['90', 'In 90 days'],
  ['date', 'On a date'],
]

/** `expiresAt` is the current expiry of an existing key, null if it never expires; undefined for a new key. */
export function TermsFields({ terms, expiresAt }: { terms: Terms; expiresAt?: string | null }) {
  const { fields, field } = terms
  return (
    <div className="flex flex-col gap-4">
      <TextField label="Name" required maxLength={200} {...field('name')} />
      <div className="grid gap-4 sm:grid-cols-2">
        <TextField label="Limit" amount placeholder="none" {...field('limit')} />
        <SelectField label="Reset" disabled={fields.limit === ''} options={windows} {...field('window')} />
      </div>
      <p className="-mt-2 text-sm text-muted">
        Hard limit: a request that could exceed it is refused before it starts.
      </p>
      <div className="grid gap-4 sm:grid-cols-2">
        <SelectField
          label="Expires"
          hint={fields.expiry === 'keep' && expiresAt ? endingOf(expiresAt) : undefined}
          options={[...endless(expiresAt), ...expiries]}
          {...field('expiry')}
        />
        {fields.expiry === 'date' && <TextField label="Last day (UTC)" type="date" {...field('date')} />}
      </div>
      <OptionFields terms={terms} />
    </div>
  )
}

function endless(expiresAt: string | null | undefined): Options<ExpiryChoice> {
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

/**
 * What a key may be used for: models, cost of one request, web tools, addresses. Closed at first if there are no restrictions; then only
 * the reader opens and closes it, so that a field that was emptied stays. It cannot hide an error.
 */
function OptionFields({ terms: { fields, errors, field } }: { terms: Terms }) {
  const [open, setOpen] = useState(() => isRestricted(fields))
  const isWrong = errors.models !== undefined || errors.maxCost !== undefined
  const models = useQuery(modelsQuery)
  const sold = models.data?.data.map(({ id }) => id) ?? []
  // A model that is no longer sold stays in sight, so that it can be taken away.
  const names = [...sold, ...fields.models.filter((model) => !sold.includes(model))]
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
        <div className="flex flex-col gap-2">
          <span className="font-medium">Models</span>
          <Segmented label="Models" options={modelChoices} {...field('modelChoice')} />
          {fields.modelChoice === 'some' && (
            <Checkboxes
              label="Allowed models"
              className="grid gap-x-4 sm:grid-cols-[max-content_1fr]"
              all={names.map((model) => [
                model,
                <span key={model} className="num">
                  {model}
                </span>,
              ])}
              {...field('models')}
            />
          )}
          {errors.models !== undefined && (
            <p role="alert" className="text-sm text-error">
              {errors.models}
            </p>
          )}
        </div>
        <TextField
          label="Maximum cost per request"
          amount
          placeholder="none"
          hint="A request that could cost more is refused before it starts. The cost that web search can add counts too: with a low cap, send requests without web search."
          {...field('maxCost')}
        />
        <Checkbox
          label="Allow web search and web fetch"
          checked={fields.webTools}
          onChange={field('webTools').onChange}
        />
        <TextArea
          label="Allowed IP addresses"
          rows={2}
          placeholder="any address"
          hint="IPv4 or IPv6 addresses or CIDR blocks such as 203.0.113.0/24, one per line. Empty allows any address."
          {...field('ips')}
        />
      </div>
    </details>
  )
}

const modelChoices = [
  ['all', 'All models'],
  ['some', 'Only selected'],
] as const
