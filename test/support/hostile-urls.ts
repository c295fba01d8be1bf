import type { Random } from '../faults/random.ts'

/** An address that must never be fetched, and where its host leads: what a name in it would resolve to. */
export type HostileUrl = { readonly url: string; readonly address: string; readonly name: string | undefined }

const rangesV4: readonly (readonly [first: string, bits: number])[] = [
  ['0.0.0.0', 8],
  ['10.0.0.0', 8],
  ['100.64.0.0', 10],
  ['127.0.0.0', 8],
  ['127.0.0.1', 32],
  ['168.63.129.16', 32],
  ['169.254.0.0', 16],
  ['169.254.169.254', 32],
  ['172.16.0.0', 12],
  ['192.0.0.0', 24],
  ['192.0.2.0', 24],
  ['192.168.0.0', 16],
  ['198.18.0.0', 15],
  ['224.0.0.0', 4],
  ['240.0.0.0', 4],
]
const addressesV6 =
  '::1 :: fd00::2 fd00:ec2::254 fd20:ce::254 fe80::1 febf::abcd fec0::1 ff02::1 2001:db8::7 100::1'.split(' ')
const schemes = ['http', 'https']
const otherSchemes = ['file', 'ftp', 'gopher', 'dict', 'ldap', 'ws', 'data', 'javascript', 'blob', 'view-source', 'jar']
const localNames =
  'localhost LOCALHOST localhost. a.localhost db.internal metadata.google.internal printer.local nas.lan router intranet'.split(
    ' ',
  )
const ports = [1, 22, 25, 53, 5432, 6379, 8080, 8402, 65_535]

type Notation = (octets: readonly number[], random: Random) => string

/** Ways to write an IPv4 address that some parser or other takes for one. */
const notations: readonly Notation[] = [
  (octets) => octets.join('.'),
  (octets) => `${octets.join('.')}.`,
  (octets) => String(numberOf(octets)),
  (octets) => `0x${numberOf(octets).toString(16)}`,
  (octets) => `0X${numberOf(octets).toString(16).toUpperCase()}`,
  (octets) => `0${numberOf(octets).toString(8)}`,
  (octets) => octets.map((octet) => `0x${octet.toString(16)}`).join('.'),
  (octets) => octets.map((octet) => `0${octet.toString(8)}`).join('.'),
  (octets) => octets.map((octet) => `0000${octet.toString(8)}`).join('.'),
  (octets, random) =>
    octets.map((octet) => random.pick([`${octet}`, `0x${octet.toString(16)}`, `0${octet.toString(8)}`])).join('.'),
  ([a = 0, ...rest]) => `${a}.${rest.reduce((sum, octet) => sum * 256 + octet, 0)}`,
  ([a = 0, b = 0, c = 0, d = 0]) => `${a}.${b}.${c * 256 + d}`,
  (octets) => wideDigits(octets.join('.'), 0xff10),
  (octets) => octets.join('。'),
  (octets) => octets.join('．'),
  (octets) => [...octets.join('.')].map((letter) => `%${letter.charCodeAt(0).toString(16)}`).join(''),
  (octets) => `[::ffff:${octets.join('.')}]`,
  (octets) => `[::ffff:${pairs(octets)}]`,
  (octets) => `[0:0:0:0:0:FFFF:${pairs(octets)}]`,
  (octets) => `[::${octets.join('.')}]`,
  (octets) => `[::ffff:0:${octets.join('.')}]`,
  (octets) => `[64:ff9b::${octets.join('.')}]`,
  (octets) => `[64:ff9b:1::${octets.join('.')}]`,
  (octets) => `[2002:${pairs(octets)}::1]`,
  (octets) => `[2001:0:808:808::${pairs(octets.map((octet) => octet ^ 255))}]`,
  (octets) => `user:secret@${octets.join('.')}`,
  (octets) => `public.example@${octets.join('.')}`,
  (octets) => `${octets.join('.')}\\@public.example`,
  (octets) => `public.example%40${octets.join('.')}`,
  (octets) => octets.join('.').replace('.', '\t.'),
  (octets) => octets.join('.').replace('.', '\n.'),
  (octets, random) => `${octets.join('.')}:${random.pick(ports)}`,
  (octets) => `${octets.join('.')}:80`,
]

/** Different ones for every seed, all kinds in every few hundred. */
export function hostileUrls(count: number, random: Random): HostileUrl[] {
  return Array.from({ length: count }, (_, number) => hostileUrl(number, random))
}

function hostileUrl(number: number, random: Random): HostileUrl {
  const address = random.chance(0.15) ? random.pick(addressesV6) : randomV4(random)
  const scheme = random.pick(schemes)
  switch (number % 8) {
    case 0: {
      const name = `n${number}.hostile.example`
      return { url: `${scheme}://${name}/`, address, name }
    }
    case 1: {
      const name = `${address.replaceAll(/[.:]/g, '-')}.n${number}.nip.example`
      return {
        url: `${scheme}://${random.pick([name, `${name}.`, name.toUpperCase()])}/latest/meta-data/`,
        address,
        name,
      }
    }
    case 2:
      return { url: `${scheme}://${random.pick(localNames)}/`, address, name: undefined }
    case 3:
      return { url: `${random.pick(otherSchemes)}://${bracketed(address)}/etc/passwd`, address, name: undefined }
    default: {
      const host = address.includes(':')
        ? bracketed(address)
        : random.pick(notations)(address.split('.').map(Number), random)
      return { url: `${scheme}://${host}/latest/meta-data/`, address, name: undefined }
    }
  }
}

function randomV4(random: Random): string {
  const [first, bits] = random.pick(rangesV4)
  const spread = random.between(0, 2 ** (32 - bits) - 1)
  const value = numberOf(first.split('.').map(Number)) + spread
  return [24, 16, 8, 0].map((shift) => Math.floor(value / 2 ** shift) % 256).join('.')
}

function numberOf(octets: readonly number[]): number {
  return octets.reduce((sum, octet) => sum * 256 + octet, 0)
}

function pairs([a = 0, b = 0, c = 0, d = 0]: readonly number[]): string {
  return `${(a * 256 + b).toString(16)}:${(c * 256 + d).toString(16)}`
}

function wideDigits(text: string, zero: number): string {
  return text.replaceAll(/\d/g, (digit) => String.fromCharCode(zero + Number(digit)))
}

function bracketed(address: string): string {
  return address.includes(':') ? `[${address}]` : address
}
