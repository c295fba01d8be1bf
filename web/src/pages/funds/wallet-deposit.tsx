import { useMutation, useQuery, useQueryClient } from '@tanstack/react-query'
import { useState } from 'react'
import { parse } from '../../../../src/money/usdc.ts'
import { call } from '../../api/call.ts'
import { depositsQuery } from '../../api/queries.ts'
import { amountError, formatExact, isAmount } from '../../money/format.ts'
import { useAnnounce } from '../../ui/announce.tsx'
import { Button } from '../../ui/button.tsx'
import { CopyableId } from '../../ui/copy.tsx'
import { TextField } from '../../ui/field.tsx'
import { Form, useForm } from '../../ui/form.tsx'
import { ErrorPanel } from '../../ui/loaded.tsx'
import { Notice } from '../../ui/panel.tsx'
import { connectWallet, useWallets, type Wallet } from '../../wallet/wallet.ts'
import { WalletButton } from '../../wallet/wallet-button.tsx'
import { Transaction } from '../requests/request-drawer.tsx'
import { Steps } from './steps.tsx'
import { type Chain, enterChain, readOutcome, readUsdc, sendUsdc } from './wallet-transfer.ts'

type Connected = { readonly wallet: Wallet; readonly address: string }
type Sent = { readonly hash: string; readonly wallet: Wallet }

/** USDC from a wallet of this browser, without copying an address. */
export function WalletDeposit({ chain, to, hasFaucet }: { chain: Chain; to: string; hasFaucet: boolean }) {
  const wallets = useWallets()
  const [sent, setSent] = useState<Sent>()
  const connect = useMutation({
    mutationFn: async (wallet: Wallet): Promise<Connected> => {
      const address = await connectWallet(wallet)
      await enterChain(wallet, chain)
      return { wallet, address }
    },
  })
  return (
    <section
      aria-label="Connect wallet"
      data-testid="wallet-deposit"
      className="flex flex-col gap-3 border-t border-rule pt-4"
    >
      <h3 className="font-medium">From a wallet in this browser</h3>
      {wallets.length === 0 && (
        <p className="text-sm text-muted">
          No wallet found in this browser. You can send from any wallet to the address above.
        </p>
      )}
      {connect.data === undefined ? (
        <div className="flex flex-wrap gap-2">
          {wallets.map((wallet) => (
            <WalletButton
              key={wallet.id}
              wallet={wallet}
              onClick={() => connect.mutate(wallet)}
              busy={connect.isPending}
            />
          ))}
        </div>
      ) : (
        <TransferForm
          chain={chain}
          to={to}
          hasFaucet={hasFaucet}
          connected={connect.data}
          onSent={setSent}
          onLeave={connect.reset}
        />
      )}
      {connect.error !== null && <ErrorPanel error={connect.error} />}
      {sent !== undefined && <Progress key={sent.hash} sent={sent} chain={chain} />}
    </section>
  )
}

type TransferFormProps = {
  chain: Chain
  to: string
  hasFaucet: boolean
  connected: Connected
  onSent: (sent: Sent) => void
  onLeave: () => void
}

function TransferForm({ chain, to, hasFaucet, connected: { wallet, address }, onSent, onLeave }: TransferFormProps) {
  const client = useQueryClient()
  const announce = useAnnounce()
  const balanceKey = ['wallet', wallet.id, address]
  const balance = useQuery({
    queryKey: balanceKey,
    queryFn: () => readUsdc(wallet, chain, address),
    refetchInterval: 5_000,
  })
  const form = useForm({ amount: '' }, (typed) => ({ amount: amountProblem(typed.amount, balance.data) }))
  const { amount } = form.fields
  const send = useMutation({
    mutationFn: async () => ({
      wallet,
      hash: await sendUsdc(wallet, chain, { from: address, to, amount: parse(amount) }),
    }),
    onSuccess: (sent) => {
      announce('Sent. Waiting for the deposit.')
      form.reset()
      onSent(sent)
    },
    onSettled: () => client.invalidateQueries({ queryKey: balanceKey }),
  })
  const faucet = useMutation({
    mutationFn: () => call('POST /api/faucet', { body: { wallet: address } }),
    onSettled: () => client.invalidateQueries({ queryKey: balanceKey }),
  })
  const error = send.error ?? faucet.error ?? balance.error
  return (
    <Form onSubmit={() => form.submit(send.mutate)} className="flex flex-col gap-3">
      <p className="flex flex-wrap items-center gap-x-2">
        {wallet.name} <CopyableId id={address} label="wallet address" short /> on {chain.name}
        <Button small variant="quiet" onClick={onLeave}>
          Use another wallet
        </Button>
      </p>
      <TextField
        label="Amount to deposit"
        amount
        hint={
          balance.data === undefined ? 'Reading the wallet balance…' : `The wallet has ${formatExact(balance.data)}.`
        }
        {...form.field('amount')}
      />
      <div className="flex flex-wrap gap-2">
        <Button type="submit" variant="primary" busy={send.isPending}>
          {isAmount(amount) ? `Send ${amount} USDC` : 'Send USDC'}
        </Button>
        {hasFaucet && <Button change={faucet}>Send 25 test USDC to the wallet</Button>}
      </div>
      <p className="text-sm text-muted">
        {wallet.name} asks you to approve the transfer before anything is sent. You pay the network fee on {chain.name}.
      </p>
      {error !== null && <ErrorPanel error={error} />}
    </Form>
  )
}

function amountProblem(amount: string, balance: bigint | undefined): string | undefined {
  if (!isAmount(amount)) return amountError
  if (balance !== undefined && parse(amount) > balance) return `The wallet has ${formatExact(balance)}.`
  return undefined
}

/** From the wallet's transaction to money that can be spent. Once it is seen, the deposit's own steps take over. */
function Progress({ sent: { hash, wallet }, chain }: { sent: Sent; chain: Chain }) {
  const deposits = useQuery(depositsQuery)
  const deposit = deposits.data?.data.find(({ tx_hash }) => tx_hash === hash.toLowerCase())
  const outcome = useQuery({
    queryKey: ['wallet', 'transaction', hash],
    queryFn: async () => (await readOutcome(wallet, hash)) ?? null,
    enabled: deposit === undefined,
    refetchInterval: ({ state }) => (state.data == null ? 2_000 : false),
  })
  if (outcome.data === 'reverted' && deposit === undefined) {
    return (
      <Notice tone="error" role="alert">
        The transaction failed on {chain.name}: no USDC left the wallet, only the network fee.{' '}
        <Transaction hash={hash} explorer={chain.explorer_url} />
      </Notice>
    )
  }
  return (
    <div data-testid="wallet-progress" data-state={deposit?.state ?? 'sent'} className="rounded-md bg-sunken p-3">
      {deposit === undefined ? (
        <p className="flex flex-wrap items-center gap-x-3" role="status">
          Sent by {wallet.name}, waiting for confirmation <Transaction hash={hash} explorer={chain.explorer_url} />
        </p>
      ) : (
        <Steps
          steps={deposit.steps}
          failed={deposit.state === 'failed'}
          reason={deposit.reason}
          explorer={chain.explorer_url}
        />
      )}
    </div>
  )
}
