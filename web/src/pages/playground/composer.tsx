import { type KeyboardEvent, useId } from 'react'
import type { Key } from '../../api/shapes.ts'
import { Button } from '../../ui/button.tsx'
import { type Conversation, isRunning } from './conversation.ts'
import type { PlaygroundActions } from './playground-actions.ts'
import { type Settings, sendProblem } from './playground-form.ts'
import { QuoteLine } from './quote-line.tsx'
import { ConversationTotal } from './turn-line.tsx'

type Props = {
  readonly conversation: Conversation
  readonly settings: Settings
  readonly actions: PlaygroundActions
  readonly payingKey: Key | undefined
}

const isMac = /Mac|iPhone|iPad/.test(navigator.userAgent)

/** The next message, its maximum cost, and the key that pays. */
export function Composer({ conversation, settings, actions, payingKey }: Props) {
  const { lanes, draft } = conversation
  const id = useId()
  const running = isRunning(conversation)
  const problem = sendProblem(settings, conversation, payingKey)
  const send = () => {
    if (problem === undefined && !running) actions.send()
  }
  const onKeyDown = (event: KeyboardEvent) => {
    if (event.key !== 'Enter' || !(event.metaKey || event.ctrlKey)) return
    event.preventDefault()
    send()
  }
  return (
    <form
      className="flex flex-col gap-2 rounded-md border border-edge bg-surface p-3 has-[textarea:focus-visible]:outline-2 has-[textarea:focus-visible]:outline-link"
      data-testid="composer"
      onSubmit={(event) => {
        event.preventDefault()
        send()
      }}
    >
      <label htmlFor={id} className="sr-only">
        Message
      </label>
      <textarea
        id={id}
        rows={Math.min(8, Math.max(2, draft.split('\n').length))}
        value={draft}
        placeholder={lanes.length > 1 ? 'Message to both models' : 'Message'}
        onChange={({ target }) => actions.setDraft(target.value)}
        onKeyDown={onKeyDown}
        className="w-full resize-none bg-transparent px-1 outline-none"
      />
      <div className="flex flex-wrap items-end justify-between gap-x-4 gap-y-2">
        <div className="min-w-0 flex-1 basis-56">
          {running ? (
            <p className="text-muted max-md:hidden">Esc stops the answer.</p>
          ) : problem === undefined ? (
            <>
              {lanes.map((lane, at) => (
                <QuoteLine
                  // biome-ignore lint/suspicious/noArrayIndexKey: a lane is its place.
                  key={at}
                  keyId={settings.keyId}
                  body={actions.bodyFor(lane, draft)}
                  label={lanes.length > 1 ? lane.model : undefined}
                  onAfford={(maxTokens) => actions.set({ maxTokens: String(maxTokens) })}
                />
              ))}
              <p className="text-sm wrap-anywhere text-muted" data-testid="payer">
                Paid by key <span className="font-medium">{payingKey?.name}</span>
              </p>
            </>
          ) : (
            <p className="text-muted" data-testid="quote">
              {problem}
            </p>
          )}
        </div>
        <div className="flex items-center gap-3">
          <Total conversation={conversation} />
          {/* Two elements, not one that changes: a click on Stop must never end as a click on Send. */}
          {running ? (
            <Button key="stop" icon="stopped" variant="danger" onClick={() => actions.stopAll()}>
              {lanes.length > 1 ? 'Stop all' : 'Stop'}
            </Button>
          ) : (
            <Button
              key="send"
              type="submit"
              variant="primary"
              disabled={problem !== undefined}
              title={problem}
              aria-keyshortcuts="Control+Enter Meta+Enter"
            >
              Send
              <kbd className="text-xs opacity-80 max-md:hidden">{isMac ? '⌘' : 'Ctrl'} ↵</kbd>
            </Button>
          )}
        </div>
      </div>
    </form>
  )
}

function Total({ conversation: { lanes, pastRequestIds } }: { conversation: Conversation }) {
  const requestIds = [...pastRequestIds, ...lanes.flatMap((lane) => lane.requestIds)]
  return requestIds.length === 0 ? null : <ConversationTotal requestIds={requestIds} label="Conversation" />
}
