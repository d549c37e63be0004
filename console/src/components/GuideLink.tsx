import { useMe } from "../layout/me";
import { address, type Guide, guides } from "../lib/guides";

/** GuideLink leads to a document, if the server has the documents. */
export function GuideLink({ guide }: { guide: Guide }) {
  const { data: me } = useMe();
  return me?.documents ? (
    <a href={address(guide)} target="_blank" rel="noopener">
      {guides[guide][1]}
    </a>
  ) : null;
}
