import { type Address, encodeDeployData } from 'viem'
import { arcSystemLogAbi, arcSystemLogBytecode } from '../../contracts/generated/ArcSystemLog.abi.ts'
import { devUsdcAbi, devUsdcBytecode } from '../../contracts/generated/DevUsdc.abi.ts'
import { settlementGatewayAbi, settlementGatewayBytecode } from '../../contracts/generated/SettlementGateway.abi.ts'
import type { ChainContracts } from './founding.ts'

/** The same address as on Arc. */
const usdc: Address = '0x3600000000000000000000000000000000000000'
const systemLog: Address = '0xfffffffffffffffffffffffffffffffffffffffe'
/**
 * Circle's delay is a week, in blocks of half a second. That is too long for a sandbox, whose blocks come only with transactions.
 */
const withdrawalDelayBlocks = 10n

/** The sandbox's contracts: one operator owns, pauses and relays the gateway. */
export function sandboxContracts(operator: Address): ChainContracts {
  return {
    usdc: {
      address: usdc,
      creationCode: encodeDeployData({ abi: devUsdcAbi, bytecode: devUsdcBytecode, args: [operator] }),
    },
    systemLog: {
      address: systemLog,
      creationCode: encodeDeployData({ abi: arcSystemLogAbi, bytecode: arcSystemLogBytecode, args: [usdc] }),
    },
    gateway: {
      creationCode: encodeDeployData({
        abi: settlementGatewayAbi,
        bytecode: settlementGatewayBytecode,
        args: [usdc, withdrawalDelayBlocks, operator, operator, operator],
      }),
    },
  }
}
