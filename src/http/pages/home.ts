import { escapeHtml, page } from './page.ts'

/** A plain page at the service's own address, until the dashboard is served there. */
export function homePage(publicUrl: string): string {
  const url = escapeHtml(publicUrl)
  return page(
    'Home',
    `<h1>Penny Router</h1>
<p>Inference that speaks the chat-completions API and is paid for in USDC, request by request.</p>
<p>Point an OpenAI client at this address and use a key of this service:</p>
<pre>base URL  ${url}/v1
models    <a href="/v1/models">${url}/v1/models</a>
docs      <a href="/docs">${url}/docs</a>
errors    <a href="/docs/errors">${url}/docs/errors</a></pre>
<p>What a request cost is at <code>/api/requests/{id}</code>; the id is in the <code>x-router-request-id</code> header of its answer.
The dashboard will be served here.</p>`,
  )
}
