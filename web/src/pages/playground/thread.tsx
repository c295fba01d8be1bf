import { Button, IconButton } from '../../ui/button.tsx'
import { type Conversation, type Lane, laneIsRunning, waitsForResults } from './conversation.ts'
import { MessageView } from './message-view.tsx'
import type { PlaygroundActions } from './playground-actions.ts'
import type { Settings } from './playground-form.ts'
import { QuoteLine } from './quote-line.tsx'
import { ConversationTotal } from './turn-line.tsx'

type Props = {
  readonly conversation: Conversation
  readonly settings: Settings
  readonly actions: PlaygroundActions
}

/** The conversation: one lane, or two side by side. */
export function Thread({ conversation: { lanes }, settings, actions }: Props) {
  const compared = lanes.length > 1
  // A message of the user is in every lane: while one streams, none of them may change.
  const locked = lanes.some(laneIsRunning)
  const { problem } = actions
  return (
    <div className={compared ? 'grid gap-4 md:grid-cols-2' : ''}>
      {lanes.map((lane, at) => (
        <section
          // biome-ignore lint/suspicious/noArrayIndexKey: a lane is its place.
          key={at}
          data-testid="lane"
          aria-label={`Conversation with ${lane.model}`}
          className={compared ? 'min-w-0 rounded-md border border-rule bg-surface p-3' : 'min-w-0'}
        >
          {compared && <LaneHeader lane={lane} onClose={() => actions.close(at)} />}
          <div className="flex flex-col gap-4">
            {lane.messages.map((message, index) => (
              <MessageView
                key={message.id}
                message={message}
                actions={actions}
                keyId={settings.keyId}
                locked={locked}
                problem={problem}
                isCompared={compared}
                isLast={index === lane.messages.length - 1}
              />
            ))}
            {waitsForResults(lane) && (
              <ContinueBar lane={lane} at={at} settings={settings} actions={actions} problem={problem} />
            )}
          </div>
        </section>
      ))}
    </div>
  )
}

function LaneHeader({ lane, onClose }: { lane: Lane; onClose: () => void }) {
  return (
    <header className="-mx-3 -mt-3 mb-3 flex items-center justify-between gap-2 border-b border-rule px-3 py-1.5">
      <h2 className="num min-w-0 truncate text-sm">{lane.model}</h2>
      <span className="flex shrink-0 items-center gap-1">
        <ConversationTotal requestIds={lane.requestIds} label="Total" />
        <IconButton
          icon="cross"
          label={`Close ${lane.model}`}
          className="size-7"
          onClick={onClose}
          disabled={laneIsRunning(lane)}
        />
      </span>
    </header>
  )
}

type ContinueProps = Omit<Props, 'conversation'> & { lane: Lane; at: number; problem: string | undefined }

function ContinueBar({ lane, at, settings, actions, problem }: ContinueProps) {
  return (
    <div className="flex flex-wrap items-center justify-between gap-3 px-3">
      <QuoteLine
        keyId={settings.keyId}
        body={actions.bodyFor(lane, '')}
        onAfford={(maxTokens) => actions.set({ maxTokens: String(maxTokens) })}
      />
      <Button variant="primary" onClick={() => actions.continue(at)} disabled={problem !== undefined} title={problem}>
        Continue
      </Button>
    </div>
  )
}
