import { errorCodes } from '../../errors.ts'
import { explanations, rowCodes } from '../../explanations.ts'
import { answerOf } from '../../http/error-response.ts'

/** The page that the `doc_url` of every error points to, as Markdown. */
export function errorsMarkdown(): string {
  const sections = errorCodes.map((code) => {
    const [cause, remedy] = explanations[code]
    const { status, retried } = answerOf(code)
    return `## \`${code}\` · ${status} {#${code}}

${cause}

**What to do:** ${remedy} ${retried ? 'SDKs retry it automatically.' : 'Do not retry the same request.'}
`
  })
  return `# Errors

Every error has OpenAI’s envelope: \`{"error": {"message", "type", "param", "code", "request_id", "doc_url"}}\`. The
\`code\` is permanent. A request that is refused before its hold costs nothing. \`/api/requests/{id}\` has the outcome of every request.

${sections.join('\n')}
${rowCodes.map((code) => `## \`${code}\` · in the request log {#${code}}\n\n${explanations[code].join(' ')}\n`).join('\n')}`
}
