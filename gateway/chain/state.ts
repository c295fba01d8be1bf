import type { Connection, Database } from '../../src/db/database.ts'
import { OperatorError } from '../../src/errors.ts'
import type { GatewayTerms } from '../terms.ts'

export type ChainState = {
  readonly firstBlock: bigint
  readonly processedHeight: bigint
  readonly recheckedHeight: bigint
  readonly lastBatchId: bigint
}

/** Binds the database to its chain, permanently. */
export async function bindChain(database: Database, terms: GatewayTerms, firstBlock: bigint): Promise<void> {
  await database.query(
    `insert into chain (chain_id, gateway_wallet, usdc, first_block, processed_height, rechecked_height, agreed_height)
     values ($1, $2, $3, $4::int8, $4::int8 - 1, $4::int8 - 1, $4::int8 - 1) on conflict do nothing`,
    [terms.chainId, terms.wallet, terms.usdc, firstBlock],
  )
  const known = await readIdentity(database)
  const { chainId, wallet, usdc } = known!
  if (chainId === terms.chainId && wallet === terms.wallet && usdc === terms.usdc) return
  throw new OperatorError(
    `The gateway's database belongs to chain ${chainId}, gateway ${wallet}, and this start is for chain ${terms.chainId}, gateway ${terms.wallet}: use another database.`,
  )
}

/** The chain that this database is bound to, so that a start does not need the chain's node. */
export async function readIdentity(
  connection: Connection,
): Promise<{ readonly chainId: number; readonly wallet: string; readonly usdc: string } | undefined> {
  const [row] = await connection.query<{ chainId: bigint; wallet: string; usdc: string }>(
    'select chain_id as "chainId", gateway_wallet as wallet, usdc from chain',
  )
  return row === undefined ? undefined : { ...row, chainId: Number(row.chainId) }
}

export async function readChainState(connection: Connection): Promise<ChainState> {
  const [state] = await connection.queryPrepared<ChainState>(
    'read_chain_state',
    `select first_block as "firstBlock", processed_height as "processedHeight", rechecked_height as "recheckedHeight",
            last_batch_id as "lastBatchId" from chain`,
    [],
  )
  return state!
}

/** Makes the scanner read everything above this block again. Known events are ignored, so it costs only time. */
export async function rewind(connection: Connection, height: bigint): Promise<void> {
  await connection.query(
    `update chain set processed_height = greatest(least(processed_height, $1::int8), first_block - 1),
                      rechecked_height = greatest(least(rechecked_height, $1::int8), first_block - 1)`,
    [height],
  )
}
