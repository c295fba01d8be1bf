const key = 'ab'.repeat(32)

/** An environment of a real chain and a gateway, with which every setting is read by the service or the gateway. */
export const everySetting = {
  CHAIN_RPC_URL: 'http://127.0.0.1:8545',
  GATEWAY_URL: 'http://127.0.0.1:9000',
  USDC_ADDRESS: `0x${'3'.repeat(40)}`,
  GATEWAY_WALLET_ADDRESS: `0x${'4'.repeat(40)}`,
  DATABASE_URL: 'postgresql://127.0.0.1/penny',
  MASTER_KEY: key,
  GATEWAY_TOKEN: key,
  GATEWAY_RELAYER_KEY: key,
  SEARCH_PROVIDER: 'exa,brave,tavily,searxng',
  EXA_API_KEY: key,
  BRAVE_API_KEY: key,
  TAVILY_API_KEY: key,
  SEARXNG_URL: 'http://127.0.0.1:8080',
}
