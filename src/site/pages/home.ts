import { escapeHtml, page } from '../page.ts'

/** A plain page at the service's address, for an installation without a built dashboard. */
export function homePage(publicUrl: string): string {
  const url = escapeHtml(publicUrl)
  return page(
    'Home',
    `<h1>Penny Router</h1>
<p>OpenAI-compatible inference, paid per request in USDC.</p>
<p>Point an OpenAI client at this address and use a key of this service:</p>
<pre>base URL  ${url}/v1
models    <a href="/v1/models">${url}/v1/models</a>
docs      <a href="/docs">${url}/docs</a>
errors    <a href="/docs/errors">${url}/docs/errors</a></pre>
<p><code>/api/requests/{id}</code> shows what a request cost; the id is in the <code>x-router-request-id</code> header of the response. The dashboard is not built on this installation.</p>`,
  )
}
