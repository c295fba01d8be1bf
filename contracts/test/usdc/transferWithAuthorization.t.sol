// SPDX-License-Identifier: MIT
pragma solidity 0.8.30;

import {Authorization} from "../../src/gateway/Authorizations.sol";
import {ERC3009} from "@openzeppelin/contracts/token/ERC20/extensions/draft-ERC3009.sol";
import {IERC20Errors} from "@openzeppelin/contracts/interfaces/draft-IERC6093.sol";
import {GatewayTest} from "../support/GatewayTest.sol";
import {Domain, Signer} from "../support/Signer.sol";
import {vm} from "../support/Vm.sol";

/// The token's own ERC-3009: it must refuse what USDC refuses, else the sandbox would forgive what Arc does not.
contract TransferWithAuthorizationTest is GatewayTest {
    using Signer for Authorization;

    event AuthorizationUsed(address indexed authorizer, bytes32 indexed nonce);
    event AuthorizationCanceled(address indexed authorizer, bytes32 indexed nonce);

    function setUp() public override {
        super.setUp();
        usdc.faucet(alice.addr, 100 * USDC);
    }

    function test_anyoneMaySubmitATransfer(uint256 value, address anyone) public {
        value = _bound(value, 0, 100 * USDC);
        Authorization memory row = _transfer(value);
        vm.expectEmit(USDC_ADDRESS);
        emit AuthorizationUsed(alice.addr, row.nonce);
        vm.prank(anyone);
        _submit(row);
        vm.assertEq(usdc.balanceOf(bob.addr), value);
        vm.assertEq(usdc.authorizationState(alice.addr, row.nonce), true);
    }

    function test_aSignatureInOnePieceWorksToo() public {
        Authorization memory row = _transfer(USDC);
        _submitPacked(row, abi.encodePacked(row.r, row.s, row.v));
        vm.assertEq(usdc.balanceOf(bob.addr), USDC);
    }

    function test_aTransferIsTakenOnce() public {
        Authorization memory row = _transfer(USDC);
        _submit(row);
        vm.expectRevert(abi.encodeWithSelector(ERC3009.ERC3009UsedAuthorization.selector, alice.addr, row.nonce));
        _submit(row);
    }

    function test_aCancelledTransferIsRefused() public {
        Authorization memory row = _transfer(USDC);
        bytes32 structHash = keccak256(
            abi.encode(keccak256("CancelAuthorization(address authorizer,bytes32 nonce)"), alice.addr, row.nonce)
        );
        bytes32 digest = keccak256(abi.encodePacked(hex"1901", Signer.separator(_usdcDomain()), structHash));
        (uint8 v, bytes32 r, bytes32 s) = vm.sign(alice.key, digest);

        vm.expectEmit(USDC_ADDRESS);
        emit AuthorizationCanceled(alice.addr, row.nonce);
        usdc.cancelAuthorization(alice.addr, row.nonce, v, r, s);
        vm.expectRevert(abi.encodeWithSelector(ERC3009.ERC3009UsedAuthorization.selector, alice.addr, row.nonce));
        _submit(row);
    }

    // OpenZeppelin reads both ends as block numbers when bit 47 is set in both. USDC reads seconds, always.
    function test_theWindowIsInSecondsWhateverItsBits(uint48 low) public {
        Authorization memory row = _transfer(USDC);
        (row.validAfter, row.validBefore) = ((1 << 47) | (low % BLOCK), (1 << 47) | (BLOCK + 1 + low));
        row = row.signed(alice.key, _usdcDomain());
        vm.expectRevert(
            abi.encodeWithSelector(
                ERC3009.ERC3009InvalidAuthorizationTime.selector, row.validAfter, row.validBefore
            )
        );
        _submit(row);
    }

    function test_attack_aTransferMeantForElsewhereIsRefused(uint64 chainId) public {
        vm.assume(chainId != CHAIN_ID);
        Domain[3] memory elsewhere = [
            Domain("USDC", "2", chainId, USDC_ADDRESS),
            Domain("USDC", "2", CHAIN_ID, address(gateway)),
            Domain("USD Coin", "2", CHAIN_ID, USDC_ADDRESS)
        ];
        for (uint256 i = 0; i < elsewhere.length; ++i) {
            Authorization memory row =
                _payment(alice.addr, bob.addr, USDC, 1).signed(alice.key, elsewhere[i]);
            vm.expectRevert(ERC3009.ERC3009InvalidSignature.selector);
            _submit(row);
        }
    }

    function test_attack_malformedSignaturesAreRefused(uint8 v) public {
        vm.assume(v != 27 && v != 28);
        Authorization memory row = _transfer(USDC);

        // The compact form of ERC-2098, and one byte too many.
        vm.expectRevert(ERC3009.ERC3009InvalidSignature.selector);
        _submitPacked(row, abi.encodePacked(row.r, row.s));
        vm.expectRevert(ERC3009.ERC3009InvalidSignature.selector);
        _submitPacked(row, abi.encodePacked(row.r, row.s, row.v, uint8(0)));

        // The twin.
        uint256 order = 0xFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFEBAAEDCE6AF48A03BBFD25E8CD0364141;
        uint8 flipped = row.v == 27 ? 28 : 27;
        vm.expectRevert(ERC3009.ERC3009InvalidSignature.selector);
        _submitPacked(row, abi.encodePacked(row.r, bytes32(order - uint256(row.s)), flipped));

        row.v = v;
        vm.expectRevert(ERC3009.ERC3009InvalidSignature.selector);
        _submit(row);
    }

    // The trap of EIP-7702: an account that delegates has code, the token asks the code, and the key's own signature no
    // longer counts. So deposit addresses must never be delegated.
    function test_attack_aDelegatedAccountCannotSign() public {
        Authorization memory row = _transfer(USDC);
        vm.etch(alice.addr, hex"00");
        vm.expectRevert(ERC3009.ERC3009InvalidSignature.selector);
        _submit(row);
    }

    function test_attack_onlyThePayeeMaySubmitAReceipt(address anyone) public {
        vm.assume(anyone != bob.addr);
        Authorization memory row = _payment(alice.addr, bob.addr, USDC, 1);
        bytes memory signature = row.receiveSignature(alice.key, _usdcDomain());
        vm.expectRevert(abi.encodeWithSelector(IERC20Errors.ERC20InvalidReceiver.selector, bob.addr));
        vm.prank(anyone);
        usdc.receiveWithAuthorization(
            row.from, row.to, row.value, row.validAfter, row.validBefore, row.nonce, signature
        );
        vm.prank(bob.addr);
        usdc.receiveWithAuthorization(
            row.from, row.to, row.value, row.validAfter, row.validBefore, row.nonce, signature
        );
        vm.assertEq(usdc.balanceOf(bob.addr), USDC);
    }

    function _transfer(uint256 value) private view returns (Authorization memory) {
        return _payment(alice.addr, bob.addr, value, 1).signed(alice.key, _usdcDomain());
    }

    function _submit(Authorization memory row) private {
        usdc.transferWithAuthorization(
            row.from, row.to, row.value, row.validAfter, row.validBefore, row.nonce, row.v, row.r, row.s
        );
    }

    function _submitPacked(Authorization memory row, bytes memory signature) private {
        usdc.transferWithAuthorization(
            row.from, row.to, row.value, row.validAfter, row.validBefore, row.nonce, signature
        );
    }
}
