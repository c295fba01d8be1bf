import type { ProviderSettings } from './routes.ts'

/** The status of a provider's answer, and the ids of the models it lists: none when the answer is not a list. */
type ListedModels = { readonly status: number; readonly ids: readonly string[] }

/** Asks a provider for its models, over a connection of its own. Rejects when it cannot be reached. */
export async function listModels(
  { baseUrl, apiKey, headers }: ProviderSettings,
  signal: AbortSignal,
): Promise<ListedModels> {
  const response = await fetch(`${baseUrl.replace(/\/+$/, '')}/models`, {
    headers: { ...headers, ...(apiKey !== undefined && { authorization: `Bearer ${apiKey}` }) },
    signal,
  })
  return { status: response.status, ids: modelIds(await response.text()) }
}

function modelIds(text: string): readonly string[] {
  try {
    const { data } = JSON.parse(text) as { readonly data?: readonly { readonly id?: unknown }[] }
    return Array.isArray(data) ? data.map((model) => String(model?.id)) : []
  } catch {
    return []
  }
}
