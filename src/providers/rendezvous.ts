/** The order in which the upstreams of a model are tried. */
export type Ranked = { readonly provider: string; readonly priority: number; readonly weight: number }

/**
 * Lower priorities first. Within one priority, weighted rendezvous hashing: a key always gets the same order, keys are distributed by
 * weight, and adding or removing an upstream moves only its own keys.
 */
export function orderByKey<Upstream extends Ranked>(upstreams: readonly Upstream[], key: string): Upstream[] {
  const scored = upstreams.map((upstream) => ({
    upstream,
    score: -upstream.weight / Math.log(unitHash(`${upstream.provider}\n${key}`)),
  }))
  scored.sort((one, other) => one.upstream.priority - other.upstream.priority || other.score - one.score)
  return scored.map(({ upstream }) => upstream)
}

/** A number between 0 and 1, both exclusive: FNV-1a with MurmurHash3's finalizer, because FNV alone distributes short keys badly. */
function unitHash(text: string): number {
  let hash = 0x811c9dc5
  for (let index = 0; index < text.length; index += 1) hash = Math.imul(hash ^ text.charCodeAt(index), 0x01000193)
  hash = Math.imul(hash ^ (hash >>> 16), 0x85ebca6b)
  hash = Math.imul(hash ^ (hash >>> 13), 0xc2b2ae35)
  hash ^= hash >>> 16
  return ((hash >>> 0) + 0.5) / 2 ** 32
}
