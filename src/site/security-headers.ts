import type { Site } from '../http/origin.ts'
import { asDeclared } from '../http/send.ts'

/** HSTS: browsers that used https once always use it. Not sent over plain http, which is for loopback only. */
export function transportHeaders({ isSecure }: Pick<Site, 'isSecure'>): Record<string, string> {
  return isSecure ? { 'strict-transport-security': 'max-age=31536000; includeSubDomains' } : {}
}

/** On every page: no third-party resources, no framing, no referrer. */
export function securityHeaders({ isSecure }: Site, styles: 'own files' | 'inline too'): Record<string, string> {
  return {
    'content-security-policy': [
      "default-src 'self'",
      // Wallets announce themselves with an icon in a data: address.
      "img-src 'self' data:",
      styles === 'own files' ? "style-src 'self'" : "style-src 'self' 'unsafe-inline'",
      "object-src 'none'",
      "base-uri 'none'",
      "form-action 'self'",
      "frame-ancestors 'none'",
    ].join('; '),
    ...asDeclared,
    'x-frame-options': 'DENY',
    'referrer-policy': 'no-referrer',
    'cross-origin-opener-policy': 'same-origin',
    'permissions-policy': 'camera=(), microphone=(), geolocation=(), payment=(), usb=()',
    ...transportHeaders({ isSecure }),
  }
}
