import type { Key, Model } from '../../api/shapes.ts'
import { atomic, formatAmount } from '../../money/format.ts'
import { Checkbox, SelectField, TextArea, TextField } from '../../ui/field.tsx'
import type { Conversation } from './conversation.ts'
import { effortsOf, type PlaygroundActions } from './playground-actions.ts'
import { modelProblem, type Settings, settingsProblems } from './playground-form.ts'

type Props = {
  readonly settings: Settings
  readonly conversation: Conversation
  readonly actions: PlaygroundActions
  readonly keys: readonly Key[]
  readonly models: readonly Model[]
  readonly onKey: (id: string) => void
}

export function SettingsPanel({ settings, conversation: { lanes }, actions, keys, models, onKey }: Props) {
  const problems = settingsProblems(settings)
  const payingKey = keys.find(({ id }) => id === settings.keyId)
  const field: Field = (name) => ({
    value: settings[name],
    error: problems[name],
    onChange: (value) => actions.set({ [name]: value }),
  })
  return (
    <div className="flex flex-col gap-4">
      {lanes.map(({ model }, at) => (
        <SelectField
          // biome-ignore lint/suspicious/noArrayIndexKey: a lane is its place.
          key={at}
          label={at === 0 ? 'Model' : 'Second model'}
          value={model}
          error={modelProblem(payingKey, model)}
          onChange={(next) => actions.setModel(at, next)}
        >
          {models.map(({ id }) => (
            <option key={id} value={id} disabled={modelProblem(payingKey, id) !== undefined}>
              {modelProblem(payingKey, id) === undefined ? id : `${id} (not allowed)`}
            </option>
          ))}
        </SelectField>
      ))}
      <KeyField keys={keys} keyId={settings.keyId} onKey={onKey} error={problems.keyId} />
      <TextArea label="System prompt" rows={3} placeholder="None" {...field('system')} />
      <Sampling field={field} lanes={lanes} models={models} />
      <Tools field={field} models={models} payingKey={payingKey} />
    </div>
  )
}

type KeyFieldProps = { keys: readonly Key[]; keyId: string; onKey: (id: string) => void; error: string | undefined }

/** Which key pays. It changes only when the user chooses another one. */
function KeyField({ keys, keyId, onKey, error }: KeyFieldProps) {
  const chosen = keys.find(({ id }) => id === keyId)
  const options = keys.map(({ id, name }) => [id, name] as const)
  return (
    <SelectField
      label="Pay with key"
      value={keyId}
      hint={
        chosen && (
          <>
            <span className="num">{chosen.hint}</span> {spendWords(chosen)}
          </>
        )
      }
      error={error}
      options={chosen === undefined ? [['', 'Choose a key'], ...options] : options}
      onChange={onKey}
    />
  )
}

function spendWords({ spent_atomic, limit_atomic }: Key): string {
  const spent = formatAmount(atomic(spent_atomic))
  return limit_atomic === null ? `${spent} spent, no limit` : `${spent} of ${formatAmount(atomic(limit_atomic))} spent`
}

/** What a field of the settings needs. */
type Field = <Name extends keyof Settings>(
  name: Name,
) => { value: Settings[Name]; error: string | undefined; onChange: (value: Settings[Name]) => void }

type PartProps = { readonly field: Field; readonly models: readonly Model[] }

function Sampling({ field, lanes, models }: PartProps & { lanes: Conversation['lanes'] }) {
  const efforts = [...new Set(lanes.flatMap(({ model }) => effortsOf(models.find(({ id }) => id === model))))]
  return (
    <>
      <div className="grid grid-cols-2 gap-3">
        <TextField label="Max tokens" mono trimmed inputMode="numeric" {...field('maxTokens')} />
        <TextField
          label="Temperature"
          mono
          trimmed
          inputMode="decimal"
          placeholder="default"
          {...field('temperature')}
        />
      </div>
      <p className="-mt-2 text-sm text-muted">Max tokens decides how much is held while the request runs.</p>
      {efforts.length > 0 && (
        <SelectField
          label="Reasoning effort"
          options={[['', 'Default'], ...efforts.map((effort) => [effort, effort] as const)]}
          {...field('effort')}
        />
      )}
    </>
  )
}

const formats = [
  ['text', 'Text'],
  ['json_object', 'JSON'],
  ['json_schema', 'JSON schema'],
] as const

function Tools({ field, models, payingKey }: PartProps & { payingKey: Key | undefined }) {
  const canSearch = models.some(({ pricing }) => pricing.web_search !== undefined)
  const hasWeb = payingKey?.web_tools !== false
  const web = (name: 'search' | 'fetch', label: string, hint?: string) => (
    <Checkbox
      label={label}
      hint={hasWeb ? hint : 'This key does not allow it.'}
      checked={field(name).value && hasWeb}
      disabled={!hasWeb}
      onChange={field(name).onChange}
    />
  )
  return (
    <>
      <div>
        {canSearch && web('search', 'Web search', 'Each search costs extra. The quote shows the most it can add.')}
        {web('fetch', 'Web fetch')}
        <Checkbox label="Stream the answer" checked={field('stream').value} onChange={field('stream').onChange} />
      </div>
      <SelectField label="Response format" options={formats} {...field('format')} />
      {field('format').value === 'json_schema' && (
        <TextArea
          label="JSON schema"
          rows={6}
          mono
          placeholder={'{"type": "object", "properties": {…}}'}
          {...field('schema')}
        />
      )}
      <details open={field('tools').value !== '' || undefined}>
        <summary className="font-medium">Tools</summary>
        <div className="pt-2">
          <TextArea
            label="Function definitions"
            hint="JSON, one or a list. When the model calls a function, you write its result."
            rows={6}
            mono
            placeholder={'[{"name": "get_weather", "parameters": {…}}]'}
            {...field('tools')}
          />
        </div>
      </details>
    </>
  )
}
