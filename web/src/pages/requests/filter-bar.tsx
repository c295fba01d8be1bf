import { useQuery } from '@tanstack/react-query'
import { type ReactNode, useEffect, useMemo, useState } from 'react'
import { keysQuery, modelsQuery } from '../../api/queries.ts'
import type { LedgerRequest } from '../../api/shapes.ts'
import { Button } from '../../ui/button.tsx'
import { Checkboxes, Segmented, Select, TextField } from '../../ui/field.tsx'
import { Form } from '../../ui/form.tsx'
import { Icon } from '../../ui/icon.tsx'
import { Popover } from '../../ui/menu.tsx'
import { Time } from '../../ui/time.tsx'
import { type Filters, isFiltered, isMinCost, noFilters, ranges, type Status, statuses } from './filters.ts'
import { errorCodes } from './refusals.ts'

type Props = { filters: Filters; onChange: (filters: Filters) => void }
type BarProps = Props & { rows: readonly LedgerRequest[] }

export function FilterBar({ filters, onChange, rows }: BarProps) {
  const { data: models } = useQuery(modelsQuery)
  const keyNames = useKeyNames(rows)
  const set = (changed: Partial<Filters>) => onChange({ ...filters, ...changed })
  const preset = typeof filters.range === 'string' ? filters.range : 'custom'
  return (
    <search className="flex flex-wrap items-center gap-2" aria-label="Filter requests">
      <FindBox find={filters.find} onFind={(find) => set({ find })} />
      <Segmented
        label="Range"
        value={preset}
        options={preset === 'custom' ? [...ranges, ['custom', 'Custom'] as const] : ranges}
        onChange={(range) => range !== 'custom' && set({ range })}
      />
      <Choices<Status>
        label="Status"
        all={statuses.map((status) => [status, capital(status)])}
        chosen={filters.status}
        onChange={(status) => set({ status })}
      />
      <Choices
        label="Model"
        all={(models?.data ?? []).map(({ id }) => [id, id])}
        chosen={filters.model}
        onChange={(model) => set({ model })}
      />
      <Choices label="Key" all={keyNames} chosen={filters.key} onChange={(key) => set({ key })} />
      <Choices
        label="Error code"
        all={errorCodes.map((code) => [code, code])}
        chosen={filters.code}
        onChange={(code) => set({ code })}
      />
      <MoreFilters filters={filters} onChange={onChange} />
      {isFiltered(filters) && (
        <Button small variant="quiet" icon="cross" onClick={() => onChange(noFilters)}>
          Clear
        </Button>
      )}
      {typeof filters.range !== 'string' && (
        <p className="text-sm text-muted">
          <Time at={filters.range.from} /> to <Time at={filters.range.to} />
        </p>
      )}
    </search>
  )
}

/** The person's own keys, and those of other members in the rows. */
function useKeyNames(rows: readonly LedgerRequest[]): readonly (readonly [id: string, name: string])[] {
  const { data: keys } = useQuery(keysQuery)
  return useMemo(
    () => [...new Map([...(keys?.data ?? []), ...rows.map(({ key }) => key)].map(({ id, name }) => [id, name]))],
    [keys, rows],
  )
}

function FindBox({ find, onFind }: { find: string; onFind: (find: string) => void }) {
  const [text, setText] = useState(find)
  useEffect(() => setText(find), [find])
  return (
    <Form onSubmit={() => onFind(text.trim())} className="relative w-full sm:w-72">
      <Icon name="search" className="absolute top-2 left-2.5 text-muted" />
      <input
        aria-label="Request id, completion id, receipt id or transaction"
        placeholder="Id or transaction"
        spellCheck={false}
        value={text}
        onChange={(event) => setText(event.target.value)}
        onBlur={() => text.trim() !== find && onFind(text.trim())}
        className="num h-8 w-full rounded-md border border-edge bg-surface pr-2.5 pl-8"
      />
    </Form>
  )
}

const choiceButton =
  'inline-flex h-8 items-center gap-1.5 rounded-md border border-edge bg-surface px-2.5 hover:bg-sunken whitespace-nowrap'

function Choices<Value extends string>({
  label,
  all,
  chosen,
  onChange,
}: {
  label: string
  all: readonly (readonly [Value, string])[]
  chosen: readonly Value[]
  onChange: (chosen: readonly Value[]) => void
}) {
  const names = chosen.map((value) => all.find(([one]) => one === value)?.[1] ?? value)
  return (
    <Popover
      label={`${label}: ${names.join(' or ') || 'any'}`}
      buttonClassName={choiceButton}
      button={<FilterButton label={label} names={names} />}
    >
      {() => (
        <div className="max-h-80 overflow-y-auto px-1.5">
          {all.length === 0 && <p className="py-1 text-muted">None yet.</p>}
          <Checkboxes label={label} all={all} value={chosen} onChange={onChange} />
        </div>
      )}
    </Popover>
  )
}

function FilterButton({ label, names }: { label: string; names: readonly string[] }): ReactNode {
  return (
    <>
      <span className={names.length > 0 ? 'text-muted' : undefined}>{label}</span>
      {names.length > 0 && (
        <span className="max-w-32 truncate font-medium">{names.length === 1 ? names[0] : names.length}</span>
      )}
      <Icon name="chevron" size={14} />
    </>
  )
}

function MoreFilters({ filters, onChange }: Props) {
  const set = (changed: Partial<Filters>) => onChange({ ...filters, ...changed })
  const names = [
    filters.search === undefined ? '' : filters.search ? 'with search' : 'without search',
    filters.stream === undefined ? '' : filters.stream ? 'streamed' : 'buffered',
    filters.min === '' ? '' : `from $${filters.min}`,
  ].filter(Boolean)
  return (
    <Popover
      label={`More filters: ${names.join(', ') || 'none'}`}
      buttonClassName={choiceButton}
      button={<FilterButton label="More" names={names} />}
    >
      {() => (
        <div className="flex w-64 flex-col gap-3 p-1.5">
          <MinCost value={filters.min} onCommit={(min) => set({ min })} />
          <Tristate
            label="Web search"
            words={['With search', 'Without search']}
            value={filters.search}
            onChange={(search) => set({ search })}
          />
          <Tristate
            label="Answer"
            words={['Streamed', 'Buffered']}
            value={filters.stream}
            onChange={(stream) => set({ stream })}
          />
        </div>
      )}
    </Popover>
  )
}

/** Takes effect when it is left or Enter is pressed, not with every letter. */
function MinCost({ value, onCommit }: { value: string; onCommit: (min: string) => void }) {
  const [text, setText] = useState(value)
  useEffect(() => setText(value), [value])
  const min = text.trim()
  const isWrong = min !== '' && !isMinCost(min)
  const commit = () => {
    if (min !== value && !isWrong) onCommit(min)
  }
  return (
    <TextField
      label="Charged at least (USDC)"
      mono
      value={text}
      error={isWrong ? 'Enter an amount such as 0.05. The filter is not applied.' : undefined}
      onChange={setText}
      onBlur={commit}
      onKeyDown={(event) => event.key === 'Enter' && commit()}
    />
  )
}

type TristateProps = {
  label: string
  words: readonly [yes: string, no: string]
  value: boolean | undefined
  onChange: (value: boolean | undefined) => void
}

function Tristate({ label, words: [yes, no], value, onChange }: TristateProps) {
  const options = [
    ['', `${label}: any`],
    ['true', yes],
    ['false', no],
  ] as const
  return (
    <Select
      aria-label={label}
      value={value === undefined ? '' : value ? 'true' : 'false'}
      options={options}
      onChange={(text) => onChange(text === '' ? undefined : text === 'true')}
    />
  )
}

function capital(text: string): string {
  return text.charAt(0).toUpperCase() + text.slice(1)
}
