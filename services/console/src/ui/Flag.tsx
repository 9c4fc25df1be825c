/** A setting of the server as it is typed, such as --mqtt-listen, which stays in one line. */
export const Flag = ({ children }: { children: string }) => (
  <span className="mono" data-flag style={{ whiteSpace: 'nowrap' }}>
    {children}
  </span>
)
