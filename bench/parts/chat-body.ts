/** Two hundred tokens at most and a short question: the size of a typical call of a classifier or a tool. */
export function chatBody(more: object = {}): string {
  return JSON.stringify({
    model: 'gpt-5.6-terra',
    max_tokens: 200,
    messages: [
      { role: 'system', content: 'You answer in one short sentence.' },
      { role: 'user', content: 'What is a penny, and who would still pick one up from the street?' },
    ],
    ...more,
  })
}
