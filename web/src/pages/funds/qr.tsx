import { encode } from 'uqr'

/** A QR code as one path: sharp at any size, and black on white in both themes, as scanners want it. */
export function QrCode({ text, label }: { text: string; label: string }) {
  const { data, size } = encode(text, { ecc: 'M', border: 3 })
  const path = data.flatMap((row, y) => row.map((dark, x) => (dark ? `M${x},${y}h1v1h-1z` : ''))).join('')
  return (
    <svg
      data-testid="qr"
      data-text={text}
      role="img"
      aria-label={label}
      viewBox={`0 0 ${size} ${size}`}
      className="w-44 rounded-md border border-rule"
      shapeRendering="crispEdges"
    >
      <rect width={size} height={size} fill="#fff" />
      <path d={path} fill="#000" />
    </svg>
  )
}
