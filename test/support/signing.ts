import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { AccountKeys } from '../../src/signer/account-keys.ts'
import { type Address, parseAddress } from '../../src/signer/address.ts'
import { Custodian } from '../../src/signer/custodian.ts'
import { HourlyValues } from '../../src/signer/hourly-values.ts'
import { nonceOf, saltOf, type TransferOperation } from '../../src/signer/nonce.ts'
import { OwnerRegister } from '../../src/signer/owner-register.ts'
import type { SignerSettings } from '../../src/signer/signer-process.ts'
import { SigningPolicy } from '../../src/signer/signing-policy.ts'
import type { TransferRequest, WithdrawalRequest } from '../../src/signer/signing-request.ts'
import { burnIntent, gatewayDomain, type SigningTerms, usdcDomain, windowOf } from '../../src/signer/signing-terms.ts'
import { atEnd, type Ending } from './at-end.ts'

export const masterKey = Buffer.from('5e'.repeat(32), 'hex')
export const keys = new AccountKeys(masterKey)
export const ownerAddress = address('0x70997970c51812dc3a010c7d01b50e0d17dc79c8')
export const payoutAddress = address('0x3c44cdddb6a900fa2b585dd299e03d12fa4293bc')

/** Arc's test network with Circle's gateway. */
export const terms: SigningTerms = {
  chainId: 5_042_002,
  usdc: { address: address('0x3600000000000000000000000000000000000000'), name: 'USDC', version: '2' },
  gatewayWallet: address('0x0077777d7eba4688bdef3e311b846f25870a19b9'),
  gatewayMinter: address('0x0022222abe238cc2c7bb1f21003f0a260052475b'),
  gatewayDomain: 26,
  seller: keys.ofRole('seller').address,
}

export const limits = { authorizationMax: 2_000_000n, withdrawalFeeMax: 50_000n, refillMax: 5_000_000n }
const hourlyMax = 10n ** 15n

export function address(text: string): Address {
  return parseAddress(text)!
}

export function temporaryFolder(t: Ending): string {
  const folder = mkdtempSync(join(tmpdir(), 'penny-signer-'))
  atEnd(t, () => rmSync(folder, { recursive: true, force: true }))
  return folder
}

export type CustodianChanges = {
  readonly now?: () => number
  readonly terms?: Partial<SigningTerms>
  readonly payoutAddress?: Address | undefined
  readonly ownerWaitMs?: number
  readonly accountHourMax?: bigint
  readonly totalHourMax?: bigint
  readonly refillHourMax?: bigint
}

/** Keys and policy in this process. Errors that are no refusals are thrown out of the test. */
export function createCustodian(t: Ending, changes: CustodianChanges = {}): Custodian {
  const hourly = () =>
    new HourlyValues({ accountMax: changes.accountHourMax ?? hourlyMax, totalMax: changes.totalHourMax ?? hourlyMax })
  const refillMax = changes.refillHourMax ?? hourlyMax
  const owners = new OwnerRegister({
    file: join(temporaryFolder(t), 'owners.journal'),
    sealingKey: keys.sealingKey('owner register'),
    waitMs: changes.ownerWaitMs ?? 0,
  })
  atEnd(t, () => owners.close())
  return new Custodian({
    keys,
    policy: new SigningPolicy({
      terms: { ...terms, ...changes.terms },
      limits,
      relayer: keys.ofRole('relayer').address,
      payoutAddress: 'payoutAddress' in changes ? changes.payoutAddress : payoutAddress,
    }),
    owners,
    hours: {
      authorization: hourly(),
      return: hourly(),
      refund: hourly(),
      payingOut: hourly(),
      refill: new HourlyValues({ accountMax: refillMax, totalMax: refillMax }),
    },
    now: changes.now ?? Date.now,
    onError(error) {
      throw error
    },
  })
}

/** Settings under which the signer process signs what `createCustodian` signs. */
export function signerSettings(dataDir: string): SignerSettings {
  const hourly = { accountMax: hourlyMax.toString(), totalMax: hourlyMax.toString() }
  return {
    dataDir,
    logLevel: 'silent',
    masterKey: { value: masterKey.toString('hex') },
    terms,
    payoutAddress,
    ownerWaitMs: 0,
    limits: {
      authorizationMax: limits.authorizationMax.toString(),
      withdrawalFeeMax: limits.withdrawalFeeMax.toString(),
      refillMax: limits.refillMax.toString(),
    },
    hourlyLimits: { authorizations: hourly, payingOut: hourly, refills: hourly },
  }
}

export type TransferChoice = {
  readonly account: string
  readonly sequence?: bigint
  readonly value?: bigint
  readonly epoch?: number
  readonly decidedAt?: Date
}

/** A transfer as an honest caller asks for it. */
export function transferRequest<Operation extends Exclude<TransferOperation, 'refund'>>(
  operation: Operation,
  { account, sequence = 0n, value = 1_000n, epoch = 0, decidedAt = new Date() }: TransferChoice,
): TransferRequest<Operation> {
  const accountAddress = keys.ofAccount(account).address
  const [from, to] = {
    authorization: [accountAddress, terms.seller],
    return: [terms.seller, accountAddress],
    deposit: [accountAddress, terms.gatewayWallet],
  }[operation] as [Address, Address]
  return {
    operation,
    account,
    epoch,
    sequence,
    domain: operation === 'deposit' ? usdcDomain(terms) : gatewayDomain(terms),
    message: { from, to, value, ...windowOf(decidedAt), nonce: nonceOf(operation, account, epoch, sequence) },
  }
}

/** A withdrawal to the owner as an honest caller asks for it. */
export function withdrawalRequest(account: string, withdrawal: string, value = 1_000_000n): WithdrawalRequest {
  return {
    operation: 'withdrawal',
    account,
    withdrawal,
    intent: burnIntent(terms, {
      depositor: keys.ofAccount(account).address,
      recipient: ownerAddress,
      value,
      maxFee: 20_000n,
      salt: saltOf('withdrawal', withdrawal),
    }),
  }
}
