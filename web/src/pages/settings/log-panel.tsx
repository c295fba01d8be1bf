import { useInfiniteQuery } from '@tanstack/react-query'
import { accountLogQuery } from '../../api/queries.ts'
import type { LogEntry } from '../../api/shapes.ts'
import { Button } from '../../ui/button.tsx'
import { Loaded, Skeleton } from '../../ui/loaded.tsx'
import { Panel } from '../../ui/panel.tsx'
import { Time } from '../../ui/time.tsx'
import { logSentence } from './log-sentence.ts'

/** The account log, newest first. */
export function LogPanel() {
  const log = useInfiniteQuery(accountLogQuery)
  return (
    <Panel title="Account log" testId="account-log">
      <Loaded query={log} skeleton={<Skeleton lines={6} />}>
        {({ pages }) => (
          <>
            <ol className="flex flex-col gap-2">
              {pages
                .flatMap(({ data }) => data)
                .map((entry) => (
                  <Entry key={entry.id} entry={entry} />
                ))}
            </ol>
            {log.hasNextPage && (
              <Button small className="mt-3" onClick={() => log.fetchNextPage()} busy={log.isFetchingNextPage}>
                Show older
              </Button>
            )}
          </>
        )}
      </Loaded>
      <p className="mt-3 text-sm text-muted">Kept for 400 days. GET /api/log has the same entries.</p>
    </Panel>
  )
}

function Entry({ entry }: { entry: LogEntry }) {
  return (
    <li data-testid="log-entry">
      <span className="block break-words">{logSentence(entry)}</span>
      <span className="block text-sm text-muted">
        <Time at={entry.created_at} />
        {entry.network !== null && ` · ${entry.network}`}
        {entry.method !== null && ` · ${entry.method}`}
      </span>
    </li>
  )
}
