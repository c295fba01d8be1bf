import type { ReactNode, SVGProps } from 'react'

/** Drawn on a grid of 16 with a line of 1.5, for 14 px text. Never used without a word where a word fits. */
const shapes = {
  overview: <path d="M2.5 8.5 8 3l5.5 5.5M4 7.5V13h8V7.5" />,
  requests: <path d="M3 4h10M3 8h10M3 12h6" />,
  usage: <path d="M3 13V9M6.5 13V5M10 13V7.5M13.5 13V3" />,
  keys: <path d="M2.75 10.5a2.75 2.75 0 1 0 5.5 0a2.75 2.75 0 1 0-5.5 0M7.5 8.5 l5.5-5.5M11 5l1.75 1.75" />,
  funds: (
    <>
      <rect x="2" y="4" width="12" height="9" rx="1.5" />
      <path d="M2 7h12M10.5 10h1.5" />
    </>
  ),
  playground: <path d="m3 4.5 3.5 3.5L3 11.5M8.5 12H13" />,
  models: <path d="M8 2.25 13.25 5v6L8 13.75 2.75 11V5zM2.75 5 8 7.75 13.25 5M8 7.75v6" />,
  settings: (
    <path d="M2.5 5h6M12 5h1.5M2.5 11H4M7.5 11h6M8.5 5a1.75 1.75 0 1 0 3.5 0a1.75 1.75 0 1 0-3.5 0M4 11a1.75 1.75 0 1 0 3.5 0a1.75 1.75 0 1 0-3.5 0" />
  ),
  operator: <path d="M2 8.5h3l1.75-4.5 2.5 8 1.75-3.5h3" />,
  docs: <path d="M4 2.5h5.5L12.5 5.5v8H4zM9.5 2.5v3h3M6.25 8.5h4M6.25 11h4" />,
  search: <path d="M2.75 7a4.25 4.25 0 1 0 8.5 0a4.25 4.25 0 1 0-8.5 0M10.25 10.25 l3.25 3.25" />,
  bell: <path d="M4 11.5V7.25a4 4 0 0 1 8 0v4.25l1 .75H3zM6.75 14h2.5" />,
  copy: (
    <>
      <rect x="5.5" y="5.5" width="8" height="8" rx="1" />
      <path d="M10.5 5.5v-3h-8v8h3" />
    </>
  ),
  check: <path d="m3 8.5 3.25 3.25L13 5" />,
  cross: <path d="m4 4 8 8M12 4l-8 8" />,
  held: (
    <>
      <circle cx="8" cy="8" r="5.25" />
      <path d="M8 8V2.75A5.25 5.25 0 0 1 13.25 8z" fill="currentColor" stroke="none" />
    </>
  ),
  charged: <circle cx="8" cy="8" r="4" fill="currentColor" />,
  refunded: <path d="M6.5 3 3 6.5 6.5 10M3 6.5h6.25a3.25 3.25 0 0 1 0 6.5H6" />,
  stopped: <rect x="4.5" y="4.5" width="7" height="7" rx="1" />,
  external: <path d="M6.5 3.5h-3v9h9v-3M9 3h4v4M13 3 7.5 8.5" />,
  download: <path d="M8 2.5V10M4.75 7 8 10.25 11.25 7M3 13.25h10" />,
  plus: <path d="M8 3v10M3 8h10" />,
  chevron: <path d="m4 6 4 4 4-4" />,
  right: <path d="m6 4 4 4-4 4" />,
  left: <path d="m10 4-4 4 4 4" />,
  sun: (
    <path d="M5.25 8a2.75 2.75 0 1 0 5.5 0a2.75 2.75 0 1 0-5.5 0M8 1.75v1.5M8 12.75v1.5M1.75 8h1.5M12.75 8h1.5M3.6 3.6l1 1M11.4 11.4l1 1M3.6 12.4l1-1M11.4 4.6l1-1" />
  ),
  moon: <path d="M13 9.5A5.5 5.5 0 0 1 6.5 3a5.5 5.5 0 1 0 6.5 6.5z" />,
  auto: (
    <>
      <circle cx="8" cy="8" r="5.25" />
      <path d="M8 2.75v10.5A5.25 5.25 0 0 0 8 2.75z" fill="currentColor" stroke="none" />
    </>
  ),
  stream: <path d="M2 8c1.5-3 3-3 4.5 0s3 3 4.5 0 2.5-2.5 3-2" />,
  warning: <path d="M8 2.75 14 13H2zM8 6.5v3M8 11.25v.25" />,
  columns: <path d="M2.5 3h11v10h-11zM6.25 3v10M9.75 3v10" />,
  filter: <path d="M2.5 4h11M4.5 8h7M6.5 12h3" />,
  dots: (
    <g fill="currentColor" stroke="none">
      <circle cx="3.5" cy="8" r="1.25" />
      <circle cx="8" cy="8" r="1.25" />
      <circle cx="12.5" cy="8" r="1.25" />
    </g>
  ),
  person: (
    <path d="M5.25 5.5a2.75 2.75 0 1 0 5.5 0a2.75 2.75 0 1 0-5.5 0M2.75 13.5c.75-2.75 2.75-4 5.25-4s4.5 1.25 5.25 4" />
  ),
  edit: <path d="m3 13 .75-3L10.5 3.25l2.25 2.25L6 12.25zM9 4.75 11.25 7" />,
  trash: <path d="M3 4.5h10M6.5 4.5v-2h3v2M4.5 4.5l.5 9h6l.5-9M6.75 7v4M9.25 7v4" />,
  again: <path d="M13 3v3.5H9.5M12.75 6.25A5.25 5.25 0 1 0 13.25 8.5" />,
  send: <path d="M8 13V3M4 7l4-4 4 4" />,
  play: <path d="M5 3.5v9l7.5-4.5z" />,
} satisfies Record<string, ReactNode>

export type IconName = keyof typeof shapes

export function Icon({ name, size = 16, ...rest }: { name: IconName; size?: number } & SVGProps<SVGSVGElement>) {
  return (
    <svg
      viewBox="0 0 16 16"
      width={size}
      height={size}
      fill="none"
      stroke="currentColor"
      strokeWidth={1.5}
      strokeLinecap="round"
      strokeLinejoin="round"
      aria-hidden="true"
      focusable="false"
      className="shrink-0"
      {...rest}
    >
      {shapes[name]}
    </svg>
  )
}
