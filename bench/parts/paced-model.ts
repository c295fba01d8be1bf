/** `/mixed/v1` of the mock upstream answers this model a word at a time, and every other one at once. */
export const pacedModel = 'gpt-5.6-luna'
