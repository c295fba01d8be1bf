/** A plain page at the service's own address, until the dashboard is served there. */
export function homePage(publicUrl: string): string {
  return `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Penny Router</title>
<style>
  :root { color-scheme: light dark; }
  body { font: 16px/1.5 system-ui, sans-serif; max-width: 40rem; margin: 4rem auto; padding: 0 1.5rem; }
  code, pre { font-family: ui-monospace, monospace; font-size: 0.9em; }
  pre { overflow-x: auto; padding: 1rem; border: 1px solid; border-radius: 6px; }
</style>
</head>
<body>
<main>
<h1>Penny Router</h1>
<p>Inference that speaks the chat-completions API and is paid for in USDC, request by request.</p>
<p>Point an OpenAI client at this address and use a key of this service:</p>
<pre>base URL  ${publicUrl}/v1
models    <a href="/v1/models">${publicUrl}/v1/models</a></pre>
<p>What a request cost is at <code>/api/requests/{id}</code>; the id is in the <code>x-router-request-id</code> header of its answer.
The dashboard will be served here.</p>
</main>
</body>
</html>
`
}
