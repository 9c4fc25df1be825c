/** Only a path of this console: a link must not send anybody elsewhere after the sign-in. */
export const safeNext = (next: string | undefined) => (next && /^\/(?![/\\])/.test(next) ? next : '/')
