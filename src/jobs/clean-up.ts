import { deleteOldAlerts } from '../alerts/alerts.ts'
import type { Config } from '../config/config.ts'
import { deleteOldLogRows } from '../db/account-log.ts'
import type { Database } from '../db/database.ts'
import { deleteExpiredSignIns } from '../identity/sessions.ts'
import { deleteOldEvents } from '../ledger/events.ts'
import { deleteOldSnapshots } from '../ledger/liabilities.ts'
import { deleteOldReplays } from '../ledger/replays.ts'
import { createRequestMonths, deleteOldRefusals } from '../ledger/requests.ts'
import { deleteOldDeliveries } from '../webhooks/deliveries.ts'
import { deleteExpiredWalletSignIns } from '../x402/sign-in.ts'

/** Limit per account for the answers that are kept for retries. */
const keptAnswerBytesMax = 256 * 1024 * 1024

/** Each step runs even if another one fails: without its partition, a new month would fill the default partition. */
export async function cleanUp(
  database: Database,
  { replayHours, refusedDays }: Pick<Config, 'replayHours' | 'refusedDays'>,
  onError: (error: unknown) => void,
): Promise<void> {
  await createRequestMonths(database).catch(onError)
  await deleteOldReplays(database, replayHours, keptAnswerBytesMax).catch(onError)
  await deleteExpiredSignIns(database).catch(onError)
  await deleteExpiredWalletSignIns(database).catch(onError)
  await deleteOldRefusals(database, refusedDays).catch(onError)
  await deleteOldEvents(database).catch(onError)
  await deleteOldDeliveries(database).catch(onError)
  await deleteOldLogRows(database).catch(onError)
  await deleteOldAlerts(database).catch(onError)
  await deleteOldSnapshots(database).catch(onError)
}
