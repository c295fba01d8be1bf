import { Link } from '@tanstack/react-router'
import { lazy, type ReactNode, Suspense, useState } from 'react'
import { useX402Wallet } from '../../api/session.ts'
import { formatCount } from '../../money/format.ts'
import { Button, buttonClass, IconButton } from '../../ui/button.tsx'
import { CopyIconButton } from '../../ui/copy.tsx'
import { TextArea } from '../../ui/field.tsx'
import { Notice } from '../../ui/panel.tsx'
import { explainCode } from '../requests/refusals.ts'
import type { Answer, AnswerError, Message, ToolCall, UserMessage } from './conversation.ts'
import type { PlaygroundActions } from './playground-actions.ts'
import { EndingNote, TurnLine } from './turn-line.tsx'

type Props = {
  readonly message: Message
  readonly actions: PlaygroundActions
  readonly keyId: string
  /** The lane is streaming: the messages that were sent must not change. */
  readonly locked: boolean
  /** Why no call can be made with the settings. */
  readonly problem: string | undefined
  readonly isLast: boolean
  /** With two lanes each answer has its own Stop button; with one, that of the composer is enough. */
  readonly isCompared: boolean
}

export function MessageView(props: Props) {
  const { message, actions } = props
  const [editing, setEditing] = useState<string>()
  if (editing !== undefined) {
    return (
      <Editor
        role={message.role}
        locked={props.locked}
        problem={props.problem}
        text={editing}
        onChange={setEditing}
        onCancel={() => setEditing(undefined)}
        onSave={() => {
          actions.edit(message.id, editing)
          setEditing(undefined)
        }}
        onAnswer={() => {
          actions.edit(message.id, editing)
          actions.answerAgain(message.id)
          setEditing(undefined)
        }}
      />
    )
  }
  const edit = () => setEditing(message.content)
  return message.role === 'user' ? (
    <UserView {...props} message={message} onEdit={edit} />
  ) : (
    <AnswerView {...props} message={message} onEdit={edit} />
  )
}

const lockedReason = 'Wait for the answer that is streaming, or stop it.'

type EditorProps = {
  role: Message['role']
  locked: boolean
  problem: string | undefined
  text: string
  onChange: (text: string) => void
  onCancel: () => void
  onSave: () => void
  onAnswer: () => void
}

function Editor({ role, locked, problem, text, onChange, onCancel, onSave, onAnswer }: EditorProps) {
  const unsavable = locked || text.trim() === ''
  const reason = locked ? lockedReason : undefined
  return (
    <div className="flex flex-col gap-2 rounded-md border border-rule bg-surface p-3">
      <TextArea
        label={role === 'user' ? 'Edit your message' : 'Edit the answer'}
        rows={Math.min(14, Math.max(3, text.split('\n').length + 1))}
        value={text}
        onChange={onChange}
      />
      <div className="flex flex-wrap justify-end gap-2">
        <Button small variant="quiet" onClick={onCancel}>
          Cancel
        </Button>
        <Button small onClick={onSave} disabled={unsavable} title={reason}>
          Save
        </Button>
        {role === 'user' && (
          <Button
            small
            variant="primary"
            onClick={onAnswer}
            disabled={unsavable || problem !== undefined}
            title={reason ?? problem}
          >
            Save and answer again
          </Button>
        )}
      </div>
    </div>
  )
}

function Header({ name, mono = false, children }: { name: string; mono?: boolean; children: ReactNode }) {
  return (
    <header className="flex min-h-7 items-center justify-between gap-2">
      <span className={`truncate text-sm font-medium text-muted ${mono ? 'num' : ''}`}>{name}</span>
      <span className="-mr-1.5 flex shrink-0 items-center">{children}</span>
    </header>
  )
}

function UserView(props: Props & { message: UserMessage; onEdit: () => void }) {
  return (
    <article data-testid="message" data-role="user" className="rounded-md bg-sunken px-3 pt-1 pb-2.5">
      <Header name="You">
        <MessageButtons word="message" {...props} />
      </Header>
      <p className="break-words whitespace-pre-wrap">{props.message.content}</p>
    </article>
  )
}

type ButtonsProps = Pick<Props, 'message' | 'actions' | 'locked' | 'problem'> & {
  word: 'message' | 'answer'
  onEdit: () => void
}

function MessageButtons({ word, message, actions, locked, problem, onEdit }: ButtonsProps) {
  return (
    <>
      <IconButton icon="edit" label={`Edit ${word}`} className="size-7" onClick={onEdit} disabled={locked} />
      <IconButton
        icon="again"
        label="Answer again"
        title={problem ?? 'Answer again. Later messages are removed.'}
        className="size-7"
        onClick={() => actions.answerAgain(message.id)}
        disabled={locked || problem !== undefined}
      />
      <IconButton
        icon="trash"
        label={`Remove ${word}`}
        className="size-7"
        onClick={() => actions.remove(message.id)}
        disabled={locked}
      />
    </>
  )
}

function AnswerView(props: Props & { message: Answer; onEdit: () => void }) {
  const { message, actions, keyId, locked, problem } = props
  const isLive = message.state === 'running' || message.state === 'stopping'
  return (
    <article data-testid="message" data-role="assistant" data-state={message.state} className="px-3" aria-busy={isLive}>
      <Header name={message.model} mono>
        {isLive && props.isCompared && (
          <Button
            small
            icon="stopped"
            variant="danger"
            title="Stop (Esc)"
            onClick={() => actions.stop(message.id)}
            busy={message.state === 'stopping'}
          >
            Stop
          </Button>
        )}
        {!isLive && (
          <>
            {message.content !== '' && <CopyIconButton text={message.content} label="Copy answer" />}
            <MessageButtons word="answer" {...props} />
          </>
        )}
      </Header>
      <div className="flex flex-col gap-2">
        <Steps answer={message} />
        {message.content !== '' && (
          <div data-testid="answer">
            <LazyMarkdown text={message.content} />
          </div>
        )}
        {message.toolCalls.length > 0 && <ToolCalls {...props} />}
        {message.error !== undefined && (
          <Failure
            error={message.error}
            keyId={keyId}
            problem={problem}
            onRetry={locked || !props.isLast ? undefined : () => actions.answerAgain(message.id)}
            onAfford={(maxTokens) => actions.set({ maxTokens: String(maxTokens) })}
          />
        )}
        <EndingNote answer={message} />
        <TurnLine answer={message} />
      </div>
    </article>
  )
}

/** What happened before the answer: searches, pages, reasoning. */
function Steps({ answer: { activity, reasoning } }: { answer: Answer }) {
  return (
    <>
      {activity.length > 0 && (
        <ul className="flex flex-col gap-0.5 text-sm text-muted">
          {activity.map(({ id, text, isRunning }) => (
            <li key={id} className="break-words">
              {text}
              {isRunning && '…'}
            </li>
          ))}
        </ul>
      )}
      {reasoning !== '' && (
        <details className="text-sm text-muted">
          <summary>Reasoning</summary>
          <div className="mt-1 border-l-2 border-rule pl-3">
            <LazyMarkdown text={reasoning} />
          </div>
        </details>
      )}
    </>
  )
}

function ToolCalls({ message, actions, isLast }: Props & { message: Answer }) {
  const writable = isLast && message.state === 'done'
  return (
    <div className="flex flex-col gap-2" data-testid="tool-calls">
      {message.toolCalls.map((call) => (
        <div key={call.id} className="rounded-md border border-rule">
          <p className="border-b border-rule px-3 py-1.5 text-sm">
            Calls <code className="num font-medium">{call.name}</code>
          </p>
          <pre className="num overflow-x-auto px-3 py-2 text-sm">
            <code>{pretty(call)}</code>
          </pre>
          <div className="border-t border-rule p-3">
            {writable ? (
              <TextArea
                label={`Result of ${call.name}`}
                rows={3}
                mono
                placeholder="What the function returns"
                value={call.result}
                onChange={(result) => actions.setResult(message.id, call.id, result)}
              />
            ) : (
              <p className="num text-sm break-words whitespace-pre-wrap">{call.result || 'No result'}</p>
            )}
          </div>
        </div>
      ))}
    </div>
  )
}

function pretty({ arguments: given }: ToolCall): string {
  try {
    return JSON.stringify(JSON.parse(given), null, 2)
  } catch {
    return given
  }
}

const Markdown = lazy(() => import('../../markdown/markdown.tsx').catch(() => ({ default: Plain })))

/** Markdown that a model wrote. Plain text until the parser has been loaded, and if it cannot be. */
function LazyMarkdown({ text }: { text: string }) {
  return (
    <Suspense fallback={<Plain text={text} />}>
      <Markdown text={text} />
    </Suspense>
  )
}

function Plain({ text }: { text: string }) {
  return <p className="whitespace-pre-wrap">{text}</p>
}

type FailureProps = {
  error: AnswerError
  keyId: string
  /** Why no call can be made with the settings. */
  problem: string | undefined
  onRetry: (() => void) | undefined
  onAfford: (maxTokens: number) => void
}

/** A call that was refused or failed: what happened, and what can be done about it here. */
function Failure({ error, keyId, problem, onRetry, onAfford }: FailureProps) {
  const { message, code, affordableMaxTokens } = error
  const isWalletAccount = useX402Wallet() !== undefined
  const { remedy, to } = explainCode(code, isWalletAccount)
  return (
    <Notice tone="error" role="alert">
      <p className="font-medium">{message}</p>
      {code !== '' && <p className="mt-1 text-sm">{remedy}</p>}
      <div className="mt-2 flex flex-wrap gap-2">
        {code === 'insufficient_balance' && (
          <Link to="/funds" className={buttonClass({ small: true })}>
            {isWalletAccount ? 'Funds' : 'Deposit'}
          </Link>
        )}
        {keyId !== '' && to === '/keys' && (
          <Link to="/keys/$id" params={{ id: keyId }} className={buttonClass({ small: true })}>
            Open the key
          </Link>
        )}
        {affordableMaxTokens !== undefined && (
          <Button small onClick={() => onAfford(affordableMaxTokens)}>
            Use {formatCount(affordableMaxTokens)} max tokens
          </Button>
        )}
        {onRetry !== undefined && (
          <Button small onClick={onRetry} disabled={problem !== undefined} title={problem}>
            Try again
          </Button>
        )}
      </div>
    </Notice>
  )
}
