/** An e-mail address, which a narrow column breaks behind its "@". Other names stay as they are. */
export function Email({ address }: { address: string }) {
  const at = address.lastIndexOf('@') + 1
  return (
    <span title={address}>
      {address.slice(0, at)}
      <wbr />
      {address.slice(at)}
    </span>
  )
}
